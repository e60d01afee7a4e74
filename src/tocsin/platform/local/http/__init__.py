"""HTTP in both directions: the `fetch` binding on aiohttp, and the server on uvicorn."""
