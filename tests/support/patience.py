"""How long tests wait for something real: a process, a browser, a thread, a socket.

It is much longer than anything takes, also on a busy machine. Only a test that fails waits so long.
"""

PATIENCE_S = 150.0
