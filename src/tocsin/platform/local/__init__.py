"""The embedded platform: Durable Objects, D1, KV, logs and fetch on asyncio and SQLite."""
