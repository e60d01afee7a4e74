"""The work of the commands. `cli.py` parses their arguments.

Commands that call the running service use `service_client.py`, `refresh_progress.py`, `render.py` (tables) and
`times.py`. The others work on this machine: `check.py`, `import_agents.py`, `explain_transaction.py`,
`rebuild_totals.py` and `demo.py`.
"""
