"""Every upstream by name. To add one, write its module and add a line here."""

from tocsin.settings import Settings, lookup_share
from tocsin.upstream.budget import REQUEST_SHARE, Quota
from tocsin.upstream.client import Upstream
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import tenero_upstream


def upstreams(settings: Settings) -> dict[str, Upstream]:
    hiro_quota = Quota(
        settings.hiro_plan_second,
        settings.hiro_plan_minute,
        settings.hiro_plan_month,
        round(REQUEST_SHARE + lookup_share(settings.lookup_key), 2),
        is_cap=settings.hiro_plan_cap,
    )
    tenero_quota = Quota(None, settings.tenero_plan_minute, settings.tenero_plan_month, is_cap=settings.tenero_plan_cap)
    return {
        "hiro": hiro_upstream(settings.hiro_api_url, settings.hiro_api_key, hiro_quota),
        "tenero": tenero_upstream(settings.tenero_api_url, settings.tenero_api_key, tenero_quota),
    }
