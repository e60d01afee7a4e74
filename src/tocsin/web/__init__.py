"""The HTTP API and the pages, on Starlette.

What visitors see is read from what the scheduler stored. Only submitting a trade and a refresh wait for an upstream.
"""
