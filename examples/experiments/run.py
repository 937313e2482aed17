"""DLRover's fault-tolerance experiments, on the cluster that KUBECONFIG names.

    python examples/experiments/run.py --list
    python examples/experiments/run.py straggler
    python examples/experiments/run.py all

Each creates a namespace, submits four pods that train examples/digits, injects a fault and waits for the expected
events. It prints what a user sees meanwhile, and at the end a table with the results in DLRover's documents and here.
If something expected does not happen, it prints the events and pods instead, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys

from experiment import Experiment
from hearing import NotSeen
from kubernetes import client, config
from rich.box import ASCII2
from rich.console import Console
from rich.table import Table
from scenarios import SCENARIOS as FAULTS
from scenarios import Rows
from sizes import SCENARIOS as SIZES

SCENARIOS = FAULTS | SIZES
WIDTH = 118


def main() -> int:
    args = parse_args()
    if args.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:15} {scenario.title}")
        return 0
    if problem := not_ready():
        print(f"experiments: {problem}", file=sys.stderr)
        return 2
    names = list(SCENARIOS) if args.scenario == "all" else [args.scenario]
    failed = [name for name in names if not played(name, args.keep)]
    if failed:
        print(f"experiments: not as expected: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", choices=[*SCENARIOS, "all"])
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--keep", action="store_true", help="do not delete the namespace at the end")
    args = parser.parse_args()
    if not args.list and not args.scenario:
        parser.error("scenario: must be given; --list shows all")
    return args


def not_ready() -> str:
    """What is missing in the cluster; empty if nothing is."""
    try:
        config.load_kube_config()
        client.ApiextensionsV1Api().read_custom_resource_definition("elasticjobs.outrider.dev")
        master = client.AppsV1Api().read_namespaced_deployment("outrider-master", "outrider-system")
    except config.ConfigException as error:
        return f"no cluster found: {error}"
    except client.ApiException as error:
        return f"Outrider is not installed in this cluster ({error.reason}): kubectl apply -k manifests"
    if not master.status.available_replicas:
        return "no master is running: kubectl -n outrider-system get pods"
    return ""


def played(name: str, keep: bool) -> bool:
    scenario = SCENARIOS[name]
    print(f"== {name}: {scenario.title}")
    try:
        with Experiment(name, keep) as experiment:
            show(scenario.play(experiment))
    except NotSeen:
        return False
    return True


def show(rows: Rows) -> None:
    table = Table(box=ASCII2, width=WIDTH)
    for title in ("", "DLRover, as documented", "here"):
        table.add_column(title)
    for row in rows:
        table.add_row(*row)
    print()
    Console(width=WIDTH, highlight=False).print(table)
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
