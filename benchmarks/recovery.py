"""Measures how long each launcher takes from a fault to the first step of every rank of the next generation.

torchrun and Outrider run the same script (ddp_probe.py) in turn on the same machine, get the same signals, and are
measured by the same lines that the script's processes write. A result counts only if the new generation resumed right
after the checkpoint, with the same losses as the old one, and no old process was alive; else the reason is printed.
Every repeat is a new job, so each also measures a start.

    python benchmarks/recovery.py --repeats 5
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

from measure.recovery_table import summary
from measure.report import seconds, write
from measure.scenarios import SCENARIOS, Repeat, Scenario
from measure.trial import Trial


def run_all(launchers: list[str], scenarios: list[Scenario], repeats: int, peer_limit: float) -> list[Repeat]:
    """Launchers take turns within a scenario. torchrun is not asked again for what it did not do once in time: its
    next answer would be the same after another `peer_limit`."""
    results: list[Repeat] = []
    for scenario in scenarios:
        asked = list(launchers)
        for number in range(repeats):
            for launcher in list(asked):
                limit = peer_limit if launcher == "torchrun" else scenario.limit
                folder = Path(tempfile.mkdtemp(prefix="ob-"))
                result = Trial(launcher, scenario, number, limit, folder).run()
                results.append(result)
                print_repeat(result, folder)
                if launcher == "torchrun" and result.recovery is None:
                    asked.remove(launcher)
    return results


def print_repeat(result: Repeat, folder: Path) -> None:
    """One line as it happens. The folder with log and traces stays where something was wrong."""
    line = f"{result.scenario:14} {result.launcher:9} start {seconds(result.start):>8}"
    line += f"  recovery {seconds(result.recovery):>8}  beyond {seconds(result.beyond):>8}  load {result.load:.1f}"
    if result.wrong:
        print(line, " WRONG:", "; ".join(result.wrong), f"({folder})", flush=True)
    else:
        print(line, flush=True)
        shutil.rmtree(folder, ignore_errors=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name, scenario in SCENARIOS.items() if not scenario.is_long]
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=usual)
    parser.add_argument("--peer-limit", type=float, default=60, metavar="SECONDS", help="wait this long for torchrun")
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--skip-outrider", action="store_true")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    launchers = [n for n, skip in (("torchrun", args.skip_peer), ("outrider", args.skip_outrider)) if not skip]
    scenarios = [SCENARIOS[name] for name in args.scenarios]
    results = run_all(launchers, scenarios, args.repeats, args.peer_limit)
    print("\n" + summary(results, scenarios))
    path = write("recovery", {"command": sys.argv, "repeats": [dataclasses.asdict(r) for r in results]})
    print(f"\nwritten to {path}")
    return int(any(r.wrong for r in results if r.launcher == "outrider"))


if __name__ == "__main__":
    sys.exit(main())
