"""Replay scenarios and compare them: `make conformance [SCENARIOS=path] [TRACES=path] [ONLY=A01,B02]`."""

import argparse
import json
import sys
from pathlib import Path

from conformance.replay import replay
from conformance.verdicts import state, verdict

DATA = Path(__file__).parent / "data"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--scenarios", type=Path, default=DATA / "scenarios.json")
    parser.add_argument("--traces", type=Path, default=DATA / "traces.json")
    parser.add_argument("--only", default="", help="ids or their prefixes, separated by commas")
    parser.add_argument("--real-time", action="store_true", help="do not use virtual time")
    parser.add_argument("--out", type=Path, help="write the events of our runtime, in the format of the traces")
    options = parser.parse_args()

    try:
        traces = json.loads(options.traces.read_text())["scenarios"]
        listed = json.loads(options.scenarios.read_text())
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"scenarios and traces cannot be read: {error}")
    prefixes = tuple(filter(None, options.only.split(",")))
    scenarios = [s for s in listed if s["id"].startswith(prefixes or "")]
    recorded = {}
    failed = 0
    for scenario in scenarios:
        name, (how, why) = scenario["id"], state(scenario)
        if how == "not applicable":
            print(f"skip {name}: {why}")
            continue
        if name not in traces:
            print(f"FAIL {name}: no recording of it in {options.traces.name}")
            failed += 1
            continue
        ours = recorded[name] = replay(scenario, traces[name]["events"], real_time=options.real_time)
        problems = verdict(scenario, traces[name]["events"], ours)
        failed += bool(problems)
        mark = "FAIL" if problems else "ok  "
        print(f"{mark} {name}: {scenario['desc']}" + (f" ({how}: {why})" if why else ""))
        for line in problems:
            print(f"       {line}")
    if options.out:
        options.out.write_text(json.dumps({"scenarios": {n: {"events": e} for n, e in recorded.items()}}, indent=1))
    print(f"\n{len(recorded) - failed} passed, {failed} failed, {len(scenarios) - len(recorded)} skipped")
    return 1 if failed or not recorded else 0


if __name__ == "__main__":
    sys.exit(main())
