"""Code that both platforms share.

It has the rules for keys, values, SQL, requests and calls, with their limits and error texts, so that code behaves
the same on both platforms. It also has the parts that need neither a thread nor JavaScript: JSON values, prepared
statements, redaction, log lines and their delivery, the clock.
"""
