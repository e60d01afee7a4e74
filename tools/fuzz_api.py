"""Send generated requests to the whole API, and compare every response with `/openapi.json`: `make fuzz`.

    python tools/fuzz_api.py [--examples 60] [--seed 1] [--platform local|cloudflare|both]

Schemathesis generates valid and invalid requests from the document that the service publishes. No request may get a
5xx, or a status, a content type or a body that the document does not describe.
The event streams are left out because they never end; tests/web tests them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from support.processes import ServiceProcess, import_agents, root_of, running_simulator
from support.processes import running as running_service
from support.workerd import running as running_workerd

SCHEMATHESIS = Path(__file__).parents[1] / ".venv-fuzz" / "bin" / "schemathesis"
KEYS = {
    "ADMIN_KEY": "fuzz-0123456789-admin",
    "CRON_SECRET": "fuzz-0123456789-cron",
    "CHAINHOOK_SECRET": "fuzz-0123456789-hook",
    "TOCSIN_LOOKUP_KEY": "fuzz-0123456789-site",
}
HEADERS = (
    f"X-Admin-Key: {KEYS['ADMIN_KEY']}",
    f"X-Cron-Secret: {KEYS['CRON_SECRET']}",
    f"Authorization: Bearer {KEYS['CHAINHOOK_SECRET']}",
    f"X-Api-Key: {KEYS['TOCSIN_LOOKUP_KEY']}",
)
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--platform", choices=["local", "cloudflare", "both"], default="both")
    options = parser.parse_args()
    failed = 0
    for name, platform in (("local", local), ("cloudflare", cloudflare)):
        if options.platform in (name, "both"):
            print(f"== {name}", flush=True)
            with platform() as url:
                failed |= fuzz(url, options.examples, options.seed)
    return failed


@contextmanager
def local() -> Iterator[str]:
    with running_simulator(wallets=12, history_hours=0.5) as upstreams, scratch() as data_dir:
        import_agents(data_dir, agents_of(upstreams))
        service = ServiceProcess(data_dir, **upstreams, **KEYS)
        with running_service(service):
            yield service.url


@contextmanager
def cloudflare() -> Iterator[str]:
    with (
        running_simulator(wallets=12, history_hours=0.5) as upstreams,
        scratch() as directory,
        running_workerd(directory, {**upstreams, **KEYS}) as workerd,
    ):
        workerd.migrate()
        workerd.import_agents(agents_of(upstreams))
        workerd.ask("/api/deployed", method="POST")
        yield f"http://127.0.0.1:{workerd.port}"


def fuzz(url: str, examples: int, seed: int) -> int:
    command = [str(SCHEMATHESIS), "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS)]
    command += ["--phases", "examples,coverage,fuzzing", "--mode", "all", "--workers", "1"]
    command += ["--max-examples", str(examples), "--seed", str(seed), "--request-timeout", "60"]
    for stream in ("streamEvents", "streamNews"):  # they never end
        command += ["--exclude-operation-id", stream]
    command += ["--no-color"]
    for header in HEADERS:
        command += ["--header", header]
    hooks = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(command, env=hooks, check=False).returncode


def agents_of(upstreams: dict[str, str]) -> str:
    with urlopen(f"{root_of(upstreams)}/_agents") as lines:
        return str(lines.read().decode())


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tocsin-fuzz-") as directory:
        yield Path(directory) / "data"


if __name__ == "__main__":
    sys.exit(main())
