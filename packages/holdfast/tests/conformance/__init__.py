"""Replays scenarios that were recorded on the real workerd, and compares the behaviour of our runtime."""
