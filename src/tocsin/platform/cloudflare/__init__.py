"""The Cloudflare platform: Durable Objects, D1, KV, logs and fetch behind our ports, on Pyodide."""
