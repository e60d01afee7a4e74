"""The HTTP API and the pages, on Starlette.

Visitors see what the scheduler has stored. Only submitting a trade and a refresh wait for an upstream.
"""
