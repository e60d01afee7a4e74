"""Durable objects for Python."""
