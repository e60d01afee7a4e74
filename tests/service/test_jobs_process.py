"""Jobs in the real service, by its commands, against an endpoint in TypeScript on node."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.verify_job import verify

from support.missing import NPM, require
from support.processes import ADMIN_KEY, ServiceProcess, ask, until
from support.tocsin_command import tocsin_here
from tocsin.scheduler.jobs import signed

ROOT = Path(__file__).parents[2]
ESBUILD = ROOT / "deploy" / "cloudflare" / "node_modules" / ".bin" / "esbuild"
SECRET = "a-long-random-text-of-the-site"
QUIET = {f"TOCSIN_{task}_ENABLED": "no" for task in ("TENERO", "FEED", "SWEEP")}

pytestmark = pytest.mark.slow


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    require(shutil.which("node") is not None and ESBUILD.exists(), NPM)
    bundle = tmp_path / "endpoint.cjs"
    source = ROOT / "tests" / "service" / "job_endpoint.ts"
    command = [str(ESBUILD), str(source), "--bundle", "--platform=node", f"--outfile={bundle}", "--log-level=error"]
    subprocess.run(command, check=True)
    environment = {"JOB_SECRET": SECRET, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    node = [str(shutil.which("node")), str(bundle)]
    with subprocess.Popen(node, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


class Site:
    """A service with the endpoint's jobs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.start()

    def start(self) -> None:
        self.process = ServiceProcess(self._directory, TOCSIN_JOB_SECRETS=f"site:{SECRET}", **QUIET).ready()

    def tocsin(self, *arguments: str, code: int = 0) -> str:
        environment = {"ADMIN_KEY": ADMIN_KEY, "TOCSIN_URL": self.process.url, "COLUMNS": "200"}
        done = tocsin_here(*arguments, environment=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def runs(self, job: str) -> list[Any]:
        return [run for run in self.process.runs(job) if run["outcome"] != "running"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "data")
    yield made
    made.process.kill()


def calls_of(endpoint: str) -> list[Any]:
    calls: list[Any] = ask(f"{endpoint}/calls")[1]
    return calls


def test_a_crash_during_a_call_repeats_it_with_its_key_and_there_is_one_payment(endpoint: str, site: Site) -> None:
    """The endpoint did its work, Tocsin was killed before the answer: the repeated call returns the same payment."""
    site.tocsin("job", "add", "payouts", "--to", f"{endpoint}/hang-once", "--every", "7d", "--secret", "site")
    first = until(lambda: calls_of(endpoint))
    site.process.kill()
    site.start()
    calls = until(lambda: calls_of(endpoint)[1:] and calls_of(endpoint))
    runs = until(lambda: len(site.runs("payouts")) == 2 and site.runs("payouts"))

    assert (len(first), [call["attempt"] for call in calls]) == (1, [1, 2])
    assert calls[0]["key"] == calls[1]["key"] is not None
    assert [run["outcome"] for run in runs] == ["ok", "interrupted"]
    assert (runs[0]["result"]["payment"], runs[0]["result"]["payments"]) == (1, 1)


def test_a_limit_and_a_hang_are_told_apart(endpoint: str, site: Site) -> None:
    """429 is repeated after its time with the same key; a hang is a failure after the job's limit."""
    site.tocsin("job", "add", "limited", "--to", f"{endpoint}/limited-once", "--every", "1m", "--secret", "site")
    site.tocsin(
        "job", "add", "hanging", "--to", f"{endpoint}/hang-once", "--every", "7d", "--secret", "site", "--limit", "1s"
    )
    (hung,) = until(lambda: site.runs("hanging"))
    limited = until(lambda: len(site.runs("limited")) > 1 and site.runs("limited"), 90)
    keys = [call["key"] for call in calls_of(endpoint) if call["url"] == "/limited-once"]

    assert (hung["outcome"], hung["error"]["class"]) == ("failed", "FetchTimeout")
    assert [run["outcome"] for run in limited[-2:]] == ["ok", "limited"]
    assert limited[-1]["reason"] == "the URL answered 429: busy"
    assert keys[0] == keys[1] is not None


def test_jobs_are_shown_changed_and_made_equal_to_a_file(endpoint: str, site: Site, tmp_path: Path) -> None:
    """What an operator does with them, and what the commands say; each change is in the audit log."""
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'[jobs.payouts]\nurl = "{endpoint}/pay"\ncron = "30 8 * * mon-fri"\nzone = "Europe/Berlin"\nsecret = "site"\n'
        'overdue_after = "2d"\n'
    )
    empty = site.tocsin("jobs")
    added = site.tocsin("job", "add", "mail", "--to", f"{endpoint}/mail", "--every", "1h", "--secret", "site")
    refused = site.tocsin("job", "add", "mail", "--to", "http://site.example/", "--every", "1h", code=2)
    changed = site.tocsin("job", "change", "mail", "--cron", "0 * * * *")
    paused = site.tocsin("job", "pause", "mail")
    applied = site.tocsin("job", "apply", str(file), "--yes")
    again = site.tocsin("job", "apply", str(file))
    shown, listed = site.tocsin("job", "show", "payouts"), site.tocsin("jobs")
    audit = site.tocsin("audit")
    unknown = site.tocsin("job", "remove", "mail", code=2)
    file.write_text("[jobs.payouts]\nurl = 5\n")
    wrong = site.tocsin("job", "apply", str(file), "--yes", code=2)

    assert "No jobs yet" in empty
    assert added.strip() == f"mail: added, every 1h: {endpoint}/mail"
    assert "There is a job mail already" in refused
    assert changed.strip() == "mail: cron none → 0 * * * *, every 1h → none"
    assert paused.strip() == "mail: enabled yes → no"
    assert applied.splitlines() == [
        "mail: removed", f"payouts: added, 30 8 * * mon-fri (Europe/Berlin): {endpoint}/pay", "Done.",
    ]  # fmt: skip
    assert again.strip() == "Nothing to change."
    lines = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert [(name, text.strip()) for name, text in lines[3:9]] == [
        ("cron", "30 8 * * mon-fri"), ("zone", "Europe/Berlin"), ("limit", "30s"), ("overdueAfter", "2d"),
        ("secret", "site"), ("enabled", "true"),
    ]  # fmt: skip
    assert shown.splitlines()[9].count(":30:00 UTC") == 5
    assert ("payouts" in listed, "mail" in listed) == (True, False)
    assert [word in audit for word in ("job add", "job change", "job pause", "job apply", "refused")] == [True] * 5
    assert "There is no job 'mail'; the jobs are payouts." in unknown
    assert "url is a text, not 5." in wrong


def test_the_example_in_python_verifies_a_call() -> None:
    body, now = b'{"job": "payouts"}', int(time.time())
    headers = signed("payouts-1", now, body, SECRET)

    assert verify(headers, body, SECRET) == "payouts-1"
    assert verify(headers, body + b" ", SECRET) is None
    assert verify(signed("payouts-1", now - 301, body, SECRET), body, SECRET) is None
    assert verify(signed("payouts-1", now, body, "another-secret"), body, SECRET) is None
    assert verify({}, body, SECRET) is verify({**headers, "webhook-signature": "v1,é"}, body, SECRET) is None
