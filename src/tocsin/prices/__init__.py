"""Token prices: which tokens are priced, how they are refreshed, what they cost."""
