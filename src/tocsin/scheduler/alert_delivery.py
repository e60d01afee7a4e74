"""One exchange with a receiver of alerts or heartbeats: bounded in time and size, no redirect followed."""

from collections.abc import Mapping

from tocsin.bindings import Fetch
from tocsin.errors import FetchError, RunStopped
from tocsin.scheduler.alert_message import AlertTarget, message
from tocsin.scheduler.alerts import Alert

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024


async def post_alert(fetch: Fetch, target: AlertTarget, alert: Alert, instance: str) -> str | None:
    """Post an alert. Returns why the receiver did not accept it; None if it did."""
    post = message(target, alert, instance)
    return await exchange(fetch, target.url, method="POST", headers=post.headers, body=post.body)


async def exchange(
    fetch: Fetch,
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> str | None:
    """Make one call. Returns why it failed, without the URL, which is a secret; None if it succeeded."""
    try:
        response = await fetch(
            url, method=method, headers=headers, body=body, timeout_s=TIMEOUT_S, body_max=ANSWER_BYTES_MAX
        )
    except FetchError as error:
        return f"{type(error).__name__}: {str(error).rpartition(': ')[2]}"
    except RunStopped as stopped:  # Cloudflare: this invocation has no subrequests left
        return str(stopped)
    return None if 200 <= response.status < 300 else f"the receiver answered {response.status}"
