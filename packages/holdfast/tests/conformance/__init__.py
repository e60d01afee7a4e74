"""Replays scenarios that were recorded on the real workerd, and compares the behavior of our runtime."""
