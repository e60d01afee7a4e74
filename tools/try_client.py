"""Generate a client from `/openapi.json` and use the service with it: `make client`.

The document of a running demo must be valid, the generator must understand every route, and the generated functions
must read the answers of the demo. It prints each call.
"""

import importlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
from openapi_spec_validator import validate

ROOT = Path(__file__).parents[1]
GENERATE = (Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none", "--overwrite")
PATIENCE_S = 120
METHODS = {"get", "post"}


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, demo(directory) as (url, key):
        document = httpx.get(f"{url}/openapi.json").raise_for_status()
        validate(document.json())
        operations = [
            operation["operationId"]
            for path in document.json()["paths"].values()
            for method, operation in path.items()
            if method in METHODS
        ]
        print(f"/openapi.json is valid: {len(operations)} operations")
        api = generate(Path(directory), document.content)
        if len(api) != len(operations):
            print(f"the generator understood {len(api)} of {len(operations)} operations: {sorted(api)}")
            return 1
        use(api, url, key)
    return 0


def generate(directory: Path, document: bytes) -> dict[str, ModuleType]:
    """The generated modules by operation. A warning of the generator is an error."""
    (directory / "openapi.json").write_bytes(document)
    (directory / "config.yml").write_text("post_hooks: []\n")
    files = ("--path", "openapi.json", "--output-path", "generated", "--config", "config.yml", "--fail-on-warning")
    subprocess.run([*GENERATE, *files], cwd=directory, check=True)
    sys.path.insert(0, str(directory))
    modules = sorted((directory / "generated" / "api").glob("*/[!_]*.py"))
    return {file.stem: importlib.import_module(f"generated.api.{file.parent.name}.{file.stem}") for file in modules}


def use(api: dict[str, ModuleType], url: str, key: str) -> None:
    """Call the routes that most clients use, and read a field of each answer."""
    clients = importlib.import_module("generated.client")
    anyone = clients.Client(url, raise_on_unexpected_status=True)
    operator = clients.AuthenticatedClient(url, key, prefix="", auth_header_name="X-Admin-Key")

    def ask(operation: str, *arguments: object, client: Any = anyone, **parameters: object) -> Any:
        answer = api[operation].sync(*arguments, client=client, **parameters)
        print(f"{operation:20} {type(answer).__name__}")
        return answer

    actions = api["control_scheduler"].ControlSchedulerAction
    # The demo's last round is finalized after the chain was read.
    swept = ask("control_scheduler", client=operator, action=actions.REFRESH, task="sweep")
    ask("control_scheduler", client=operator, action=actions.REFRESH, task="rounds")
    rounds = ask("list_rounds").rounds
    prices = ask("get_prices", tokens=["stx"])
    trades = ask("list_trades", limit=3).trades
    status = ask("get_trade_counts", address=trades[0].sender)
    detail = ask("get_round", rounds[0].round_id)
    result = ask("get_round_result", rounds[0].round_id, detail.results[0].stx_address)
    run = ask("list_runs", client=operator, limit=1).runs[0]
    read = {
        "a refreshed task": swept.task,
        "a price": prices.prices["stx"].price_usd,
        "an amount": int(trades[0].amount_in),
        "an agent's trades": status.trade_count,
        "a rank on the board": ask("get_leaderboard").rows[0].rank,
        "trades of a result": sum(result.result.result_json.source_counts.to_dict().values()),
        "a run": int(ask("get_run", str(run.id), client=operator).run.id == run.id),
        "a version of OpenAPI": ask("get_open_api").openapi,
        "a healthy service": ask("get_health").ok,
    }
    empty = [name for name, value in read.items() if not value]
    if empty:
        sys.exit(f"the generated client did not read {', '.join(empty)}: {read}")


@contextmanager
def demo(directory: str) -> Iterator[tuple[str, str]]:
    """The address and the admin key of a demo on a free port, with its data in this directory."""
    command = [str(ROOT / ".venv" / "bin" / "tocsin"), "serve", "--demo", "--port=0", f"--data-dir={directory}/demo"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said: dict[str, str] = {}
    try:
        for line in process.stderr:
            name, _, value = line.strip().rpartition("  ")
            said[name.strip()] = value
            if "admin key" in said:
                break
        else:
            sys.exit("the demo did not start: run `make demo` to see why")
        threading.Thread(target=process.stderr.read, daemon=True).start()  # it must not wait for a reader
        yield said["leaderboard"].removesuffix("/leaderboard"), said["admin key"]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main())
