"""`python -m tests.mutation`: does a test fail when a line of the master's core is wrong?

mutmut writes every small change of the modules that pyproject.toml names, runs the tests that come by the changed
function until one fails, and keeps the outcome in `mutants/`. All of them would take a day, so it is asked for a
sample: the same seed and the same code are the same sample, and what has an outcome already is not tried again.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import get_mutant_name

MUTMUT = str(Path(sys.executable).parent / "mutmut")
UNTRIED = ("not checked", "check was interrupted by user")


def mutants() -> list[str]:
    files = {path: mutate_file_contents(str(path), path.read_text()) for path in sorted(walk_mutatable_files())}
    return [get_mutant_name(path, name) for path, file in files.items() for name in file.mutant_names]


def outcomes() -> dict[str, str]:
    """By mutant, in mutmut's words."""
    codes: dict[str, int | None] = {}
    for path in Path("mutants").rglob("*.py.meta"):
        codes |= json.loads(path.read_text())["exit_code_by_key"]
    return defaultdict(lambda: UNTRIED[0], {name: status_by_exit_code[code] for name, code in codes.items()})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=120.0, help="try no further one then; the next call goes on")
    parser.add_argument("--jobs", default="2")
    asked = parser.parse_args()
    population, known = mutants(), outcomes()
    sample = random.Random(asked.seed).sample(population, min(asked.mutants, len(population)))
    todo = [name for name in sample if known[name] in UNTRIED]
    print(f"seed {asked.seed}: {len(sample)} of {len(population)} mutants, {len(todo)} to try", flush=True)
    if todo:
        with subprocess.Popen([MUTMUT, "run", "--max-children", asked.jobs, *todo]) as running:
            try:
                running.wait(60 * asked.minutes)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)
    known = outcomes()
    for name in sorted(sample):
        if known[name] in ("survived", "no tests"):
            print(f"{known[name]}:", flush=True)
            subprocess.run([MUTMUT, "show", name], check=False)
    counts = Counter(known[name] for name in sample)
    print(f"seed {asked.seed}: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
