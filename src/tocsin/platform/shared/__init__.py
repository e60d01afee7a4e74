"""What both platforms have in common.

The rules for keys, values, SQL, requests and calls, with their limits and error texts, so that code behaves
the same on both platforms. Also the parts that need neither a thread nor JavaScript: JSON values, prepared
statements, redaction, log lines and their delivery, the clock.
"""
