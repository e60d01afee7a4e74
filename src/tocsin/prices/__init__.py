"""Token prices: which tokens are tracked, how prices are refreshed, and the price of a token."""
