"""The data directory and its SQLite files.

It has the lock and the checks at the start, migrations, connections and their threads, and the bindings `DB` and `KV`.
docs/data.md describes the directory for operators.
"""
