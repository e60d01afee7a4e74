"""The leaderboard: rows, capital, history, news and what is published."""
