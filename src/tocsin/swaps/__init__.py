"""The competition: finds, verifies, stores, values and ranks the swaps of agents.

Pure Python that uses only the bindings, so it runs on every platform. `docs/competition.md` explains how it fits
together.
"""

from pathlib import Path

COMPETITION_MIGRATIONS = Path(__file__).parent / "sql"
