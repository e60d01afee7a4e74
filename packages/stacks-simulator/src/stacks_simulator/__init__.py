"""A Hiro and a Tenero that behave like the real ones, with a chain whose truth is known."""
