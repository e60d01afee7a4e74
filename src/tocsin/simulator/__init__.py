"""A Hiro and a Tenero that behave like the real ones, on one seeded model of a chain.

`chain.py` is the model and holds the truth. `hiro_api.py` and `tenero_api.py` reply to requests on it,
`rate_limits.py` limits the requests, and `faults.py` spoils replies. `simulator.py` puts these together.
There are two ways to get the same replies: from `simulated_fetch.py` inside a test, in virtual time, and from
`http_app.py` and `serve.py` on loopback.
"""
