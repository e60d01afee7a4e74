"""From the settings to what the scheduler is told: the same on every platform."""

from tocsin.scheduler.budget import Plan
from tocsin.scheduler.config import SchedulerConfig
from tocsin.settings import Settings
from tocsin.upstream.hiro import hiro
from tocsin.upstream.tenero import tenero


def scheduler_config(settings: Settings) -> SchedulerConfig:
    """Upstreams, their plans and the failure policy."""
    return SchedulerConfig(
        upstreams={
            "hiro": hiro(settings.hiro_api_url, settings.hiro_api_key),
            "tenero": tenero(settings.tenero_api_url, settings.tenero_api_key),
        },
        plans={
            "hiro": Plan(settings.hiro_plan_second, settings.hiro_plan_minute, settings.hiro_plan_month),
            "tenero": Plan(None, settings.tenero_plan_minute, settings.tenero_plan_month),
        },
        instance=settings.instance,
        breaker_failures=settings.breaker_failures,
    )
