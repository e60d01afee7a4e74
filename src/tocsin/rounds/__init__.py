"""Rounds: periods of the competition that end, with a result that is final and that anybody can recount.

`scoring.py` computes a result from what was captured, and from nothing else. `round_file.py` writes and reads both.
Pure.
"""
