"""The durable object with one alarm. It knows tasks and their contexts, but no particular upstream."""
