"""The platform to grow into: Cloudflare's Durable Objects, D1, KV and fetch behind our ports, on Pyodide."""
