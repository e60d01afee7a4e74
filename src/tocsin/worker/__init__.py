"""The Worker: puts the parts together on Cloudflare, as `service.py` does on the local platform."""
