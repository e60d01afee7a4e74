"""The durable object with one alarm, and what it decides by."""
