"""Durable objects in one process.

It has the runtime with its namespaces and stubs, the live objects with their turns, gates and storage, their
alarms, and the SQLite file that keeps entries and alarms. `open_objects` is the short way to use it: see
docs/objects.md.
"""
