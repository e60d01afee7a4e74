"""What the commands need: the way to the running service, words for times, tables."""
