"""`tocsin runs`: asks the service page by page, because one answer cannot hold 30 days of runs."""

from collections.abc import Mapping

from tocsin.commands.service_client import SCHEDULER, ServiceClient
from tocsin.shapes.run_days import DayList
from tocsin.shapes.scheduler import RunList, RunRecord

PAGE_MAX = 500


def list_runs(client: ServiceClient, filters: Mapping[str, str | int | None], limit: int) -> RunList:
    """The newest matching runs, at most `limit`; `next` is where the list continues."""
    asked = {name: str(value) for name, value in filters.items() if value is not None}
    runs: list[RunRecord] = []
    cursor: int | None = None
    while True:
        page = {"limit": str(min(PAGE_MAX, limit - len(runs)))}
        query = {**asked, **page, **({} if cursor is None else {"cursor": str(cursor)})}
        answer = client.read(RunList, client.get(f"{SCHEDULER}/runs", query, keyed=True))
        runs += answer.runs
        cursor = answer.next
        if cursor is None or len(runs) >= limit:
            return RunList(answer.name, runs, cursor)


def list_days(client: ServiceClient, limit: int) -> DayList:
    return client.read(DayList, client.get(f"{SCHEDULER}/days", {"limit": str(limit)}, keyed=True))
