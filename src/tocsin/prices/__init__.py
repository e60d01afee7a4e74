"""Token prices: which tokens, what they cost, and how much of it to believe."""
