"""Replays scenarios that were recorded on the real workerd, and compares what our runtime does."""
