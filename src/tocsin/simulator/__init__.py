"""A Hiro and a Tenero that behave like the real ones, on one seeded model of a chain.

`chain.py` is the model and knows the truth; `hiro_api.py` and `tenero_api.py` answer requests on it;
`limits.py` and `faults.py` stand in front of them; `simulator.py` puts these together. Two faces show
the same answers: `fetch.py` inside a test in virtual time, `app.py` and `serve.py` on loopback.
"""
