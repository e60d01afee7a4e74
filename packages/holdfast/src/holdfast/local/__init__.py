"""Objects, databases and KV on one machine: asyncio and SQLite."""
