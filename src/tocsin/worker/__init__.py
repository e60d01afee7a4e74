"""The Worker: assembles the service on Cloudflare, as `service.py` does on the local platform."""
