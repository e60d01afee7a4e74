"""The same interfaces on Cloudflare's bindings."""
