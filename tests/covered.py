"""`python -m tests.covered`: what ran of each package, from the data of coverage.py; exits with 1 where a core has less
than 97 % of its branches.

A branch is one way out of a line that has several. coverage.py's own report is by file, hundreds of lines long:
`coverage report` and `coverage html` have it, from the same data.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import coverage

PACKAGES = (
    "outrider/cli", "master/core", "master/kubernetes", "master/local", "master/recording", "master/service",
    "outrider/report", "outrider/runtime", "sidecar/core", "sidecar/shell", "training_hooks", "outrider/wire",
)  # fmt: skip
CORES = ("master/core", "sidecar/core")
LEAST = 97.0


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def main() -> int:
    data = coverage.Coverage()
    data.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        data.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    print(f"{'':18}{'statements':>12}{'':>8}{'branches':>12}")
    short = []
    for package in PACKAGES:
        sums: Counter[str] = Counter()
        for name, file in files.items():
            sums.update(file["summary"] if name.startswith(f"{package}/") else {})
        lines, branches = (
            (sums["covered_lines"], sums["num_statements"]),
            (sums["covered_branches"], sums["num_branches"]),
        )
        print(f"{package:18}{lines[1]:12,}{percent(*lines):7.1f}%{branches[1]:12,}{percent(*branches):7.1f}%")
        if package in CORES and percent(*branches) < LEAST:
            short.append(package)
    if short:
        print(f"less than {LEAST:g} % of the branches ran: {', '.join(short)}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
