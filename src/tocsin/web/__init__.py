"""The HTTP face, on Starlette: every answer is read from what the scheduler stored."""
