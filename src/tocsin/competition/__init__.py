"""The competition: which transactions are swaps, whose, worth what; found, checked, kept and ranked.

Pure Python on the ports, so that it runs on every platform. `docs/competition.md` tells how it fits together.
"""

from pathlib import Path

COMPETITION_MIGRATIONS = Path(__file__).parent / "sql"
