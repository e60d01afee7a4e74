"""Deliberate bugs: each breaks one promise, and a test must catch it. `make mutants` tries them all."""
