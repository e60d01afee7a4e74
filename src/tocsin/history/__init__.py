"""What the past was: swaps valued at the time they were made, and the board hour by hour."""
