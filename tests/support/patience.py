"""How long tests wait for something real: a process, a browser, a thread, a socket.

It is much longer than anything takes, even on a busy machine. Only a failing test waits this long.
"""

PATIENCE_S = 150.0
