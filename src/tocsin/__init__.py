"""Tocsin: one durable object with one alarm keeps prices fresh and finds swaps, off the request path."""

__version__ = "0.3.0"
