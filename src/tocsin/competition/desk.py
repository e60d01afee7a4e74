"""What the competition's work needs at hand. A run's or a request's context is one."""

from typing import Protocol

from tocsin.bindings import Clock, Database, Logger
from tocsin.budget.call_session import CallSession
from tocsin.upstream.hiro import HiroClient


class Desk(Protocol):
    """Database, upstream, time and log; the session is shared by all calls of one piece of work."""

    @property
    def db(self) -> Database: ...
    @property
    def hiro(self) -> HiroClient: ...
    @property
    def session(self) -> CallSession: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def logger(self) -> Logger: ...
