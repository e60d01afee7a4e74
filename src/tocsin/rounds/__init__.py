"""Rounds: periods of the competition, each with a final result that anybody can recount.

`scoring.py` computes a result from what was captured, and from nothing else. `round_file.py` writes both as
the file that is published, `round_file_reader.py` reads it, and `recounting.py` computes it again. All of these are
pure.
"""
