"""Rounds: periods of the competition, each with a final result that anybody can recount.

`scoring.py` computes a result from the captured inputs alone. `round_file.py` writes both as the published file,
`round_file_reader.py` reads it, and `recounting.py` computes the result again. All of these are pure.
"""
