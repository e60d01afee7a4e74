"""Formats an alert for its receiver: generic JSON, Slack, or PagerDuty's Events API v2. Pure."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tocsin import __version__
from tocsin.bindings import JSON
from tocsin.scheduler.alerts import Alert

SUMMARY_MAX = 1_000  # PagerDuty accepts 1024 characters


@dataclass(frozen=True, slots=True)
class AlertTarget:
    """Where alerts are sent, and the name of the service in them. The URL and the key are secret."""

    url: str = field(repr=False)
    format: str = "json"
    key: str | None = field(default=None, repr=False)
    name: str = "tocsin"


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """The headers and the body of a POST."""

    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def message(target: AlertTarget, alert: Alert, instance: str) -> AlertMessage:
    """Build the message to post to the target's URL."""
    write = {"slack": _slack, "pagerduty": _pagerduty}.get(target.format, _generic)
    headers = {"content-type": "application/json"}
    if target.format == "json" and target.key is not None:
        headers["authorization"] = f"Bearer {target.key}"
    return AlertMessage(headers, json.dumps(write(target, alert, instance)).encode())


def _generic(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    """`id` is the same for every attempt, so a receiver can recognise a duplicate."""
    return {
        "event": "ready" if alert.ready else "not_ready",
        "id": f"{target.name}-{instance}-{alert.at}",
        "service": target.name,
        "instance": instance,
        "state": alert.state,
        "reasons": [*alert.reasons],
        "at": alert.at,
        "version": __version__,
    }


def _slack(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    icon = ":large_green_circle:" if alert.ready else ":red_circle:"
    lines = [f"{icon} {_sentence(target, alert, instance)}", *(f"• {reason}" for reason in alert.reasons)]
    text = "\n".join(lines)
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _pagerduty(target: AlertTarget, alert: Alert, instance: str) -> JSON:
    """One incident per instance: the `resolve` event closes the incident that `trigger` opened."""
    event: dict[str, JSON] = {
        "routing_key": target.key,
        "event_action": "resolve" if alert.ready else "trigger",
        "dedup_key": f"{target.name}-{instance}",
    }
    if not alert.ready:
        summary = ": ".join([_sentence(target, alert, instance), *alert.reasons[:1]])
        event["payload"] = {
            "summary": summary[:SUMMARY_MAX],
            "source": f"{target.name} {instance}",
            "severity": "critical",
            "timestamp": datetime.fromtimestamp(alert.at / 1000, UTC).isoformat(),
            "component": "scheduler",
            "custom_details": {"state": alert.state, "reasons": [*alert.reasons], "version": __version__},
        }
    return event


def _sentence(target: AlertTarget, alert: Alert, instance: str) -> str:
    state = "ready again" if alert.ready else f"not ready ({alert.state})"
    return f"{target.name} {instance} is {state}"
