"""The past: swaps valued at the prices of their own time, and the board hour by hour."""
