"""Deliberate bugs: each breaks one promise, and a test must notice it. `make mutants` tries them all."""
