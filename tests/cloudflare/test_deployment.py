"""The deployment is consistent: names, settings, and separate stores for live and preview."""

import re
from typing import Any

import pytest

from holdfast.types import ALARM_LIMIT_MS
from support.workerd import DEPLOYMENT, wrangler_config
from tocsin import settings

LIVE = wrangler_config()
PREVIEW: dict[str, Any] = LIVE["env"]["preview"]


@pytest.mark.parametrize("config", [LIVE, PREVIEW], ids=["live", "preview"])
def test_the_scheduler_is_bound_and_made_with_sqlite(config: dict[str, Any]) -> None:
    """Binding SCHEDULER, class SchedulerDO, exported by the main module, in a migration for SQLite."""
    assert config["durable_objects"]["bindings"] == [{"name": "SCHEDULER", "class_name": "SchedulerDO"}]
    assert config["migrations"][0] == {"tag": "v1", "new_sqlite_classes": ["SchedulerDO"]}
    assert '__all__ = ["Default", "SchedulerDO"]' in (DEPLOYMENT / LIVE["main"]).read_text()
    assert [config["d1_databases"][0]["binding"], config["kv_namespaces"][0]["binding"]] == ["DB", "KV"]


@pytest.mark.parametrize("config", [LIVE, PREVIEW], ids=["live", "preview"])
def test_the_vars_are_valid_settings(config: dict[str, Any]) -> None:
    """They pass the check of a start, and none of them is a secret."""
    settings.read(config["vars"])
    assert not {known.name for known in settings.ALL if known.secret} & config["vars"].keys()


def test_a_sweep_ends_before_cloudflare_ends_the_alarm() -> None:
    """A run that we stop is recorded. A run that Cloudflare stops, at the limit of the alarm, is not."""
    read = settings.read(LIVE["vars"])
    assert max(read.sweep_slice, read.tenero_slice) <= ALARM_LIMIT_MS - 60_000


def test_preview_shares_nothing_with_live() -> None:
    """Another Worker and therefore other objects; other stores; no log service, no schedule, no tasks."""
    identifying = re.compile(r"^(name|id|database_id|database_name|service)$")

    def names(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(names, value))
        if isinstance(value, dict):
            own = {str(item) for key, item in value.items() if identifying.match(key)}
            return own.union(*[names(item) for item in value.values()])
        return set()

    live = {key: value for key, value in LIVE.items() if key not in {"env", "durable_objects"}}
    preview = {key: value for key, value in PREVIEW.items() if key != "durable_objects"}
    assert names(live) & names(preview) == set()
    assert PREVIEW["services"] == PREVIEW["triggers"]["crons"] == []
    read = settings.read(PREVIEW["vars"])
    assert (read.tenero_enabled, read.sweep_enabled) == (False, False)


def test_the_documented_binding_of_another_worker_reaches_the_scheduler() -> None:
    """It names the live Worker, its class and its instance."""
    page = (DEPLOYMENT.parents[1] / "docs" / "cloudflare.md").read_text()
    [bound] = re.findall(r'"class_name": "(\w+)", "script_name": "(\w+)"', page)
    assert bound == (LIVE["durable_objects"]["bindings"][0]["class_name"], LIVE["name"])
    assert f'idFromName("{LIVE["vars"]["TOCSIN_INSTANCE"]}")' in page


def test_there_is_a_second_wake_up() -> None:
    """A cron trigger, so that a lost alarm is set again without a visitor."""
    assert LIVE["triggers"]["crons"]
