"""Rounds: periods of the competition, each with a final result that anybody can recount from its file."""
