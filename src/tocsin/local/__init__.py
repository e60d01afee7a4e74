"""What one machine has beside objects and stores: HTTP in both directions, logs, a supervisor."""
