"""The composition root of the Cloudflare platform, as `service.py` is of the local one: the Worker."""
