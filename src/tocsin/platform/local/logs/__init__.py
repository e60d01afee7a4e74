"""Logs of the local platform.

It has the `Logger` that writes lines, the thread that passes them to a stream, the sender that passes them to the log
service in the background, and the `Logs` binding over HTTP.
"""
