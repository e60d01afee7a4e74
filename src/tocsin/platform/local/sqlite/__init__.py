"""The data directory and its SQLite files.

The lock and the checks at start, migrations, connections and their threads, and the bindings `DB` and `KV`.
docs/data.md describes the directory for operators.
"""
