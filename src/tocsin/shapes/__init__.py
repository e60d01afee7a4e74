"""Typed, frozen values that cross a boundary: the API, RPC, storage, the terminal. Each is defined here, once.

The OpenAPI document, the pages' JSDoc types and the tests' doubles are generated from these classes.
`base.py` has what they share; each of the other modules covers one subject.
"""
