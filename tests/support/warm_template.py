"""A process that has imported the service and the simulator, and forks itself into `tocsin` commands.

Starting Python, importing everything and generating the code that converts shapes takes longer than most of what
tests ask of a process. A fork is a real process with its own memory in which only this start-up is already done. It
runs `python -m tocsin` as a new process would, with its own arguments, environment, directory and output, and ends as
Python does. `support.warm_process` requests it.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

from tocsin.shape import SnakeShape

OUTPUT = (1, 2)
REQUEST_MAX = 65_536
NUMBER = struct.Struct("i")  # what is reported about a process: first its number, at the end its exit code
# What commands, and uvicorn, import when they run.
IMPORTED = (
    *("tocsin.cli", "tocsin.service", "tocsin.commands.demo", "stacks_simulator.serve"),
    *("uvicorn.loops.uvloop", "uvicorn.lifespan.on", "uvicorn.protocols.http.httptools_impl"),
    *("aiohttp", "anyio._backends._asyncio"),
)


def fork_on_request(channel: socket.socket) -> None:
    """Fork on request; return in each forked process, ready to run. Ends when the channel is closed."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    replies: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, REQUEST_MAX)
            _tell_ends(replies)
        if channel.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(channel, REQUEST_MAX, 3)
            if not message:
                sys.exit()
            while not message.endswith(b"\n"):
                message += channel.recv(REQUEST_MAX)
            *output, reply = descriptors
            if not (pid := os.fork()):
                for own in (channel, *replies.values()):
                    own.detach()
                _become(json.loads(message), output)
                return
            for descriptor in output:
                os.close(descriptor)
            replies[pid] = socket.socket(fileno=reply)
            replies[pid].send(NUMBER.pack(pid))


def _tell_ends(replies: dict[int, socket.socket]) -> None:
    for pid in list(replies):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with replies.pop(pid) as reply, suppress(BrokenPipeError):  # a test need not wait for the end
                reply.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(request: Any, output: list[int]) -> None:
    """Adopt the arguments, environment, directory and output of the new process; close everything else."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, own in zip(output, OUTPUT, strict=True):
        os.dup2(descriptor, own)
    os.closerange(3, REQUEST_MAX)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.argv = ["tocsin", *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]


def make_conversions(shape: type[SnakeShape]) -> None:
    """Generate the code that converts the shapes: otherwise each process generates it on first use."""
    for each in shape.__subclasses__():
        with suppress(Exception):  # there is no real value to convert
            each.from_dict({})
        with suppress(Exception):
            object.__new__(each).to_dict()
        make_conversions(each)


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    make_conversions(SnakeShape)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every shared page
    fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("tocsin", run_name="__main__", alter_sys=True)
