"""Clients of Hiro and Tenero over one guarded HTTP client. `registry.py` lists the upstreams."""
