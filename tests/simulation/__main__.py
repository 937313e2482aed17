"""`python -m tests.simulation --seeds 10000 --jobs 2`, or `--seed N --verbose` to see one again."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from functools import partial

from tests.simulation.outages import OutageWorld
from tests.simulation.ps import PsWorld
from tests.simulation.world import World


def try_seed(seed: int, kind: type[World] = World) -> tuple[int, str]:
    """The seed and, where it fails, its story."""
    world = kind(seed)
    try:
        world.run()
    except Exception as error:  # whatever a core raises is what this looks for
        where = "" if isinstance(error, AssertionError) else traceback.format_exc()
        return seed, "\n".join([*world.story(40), where, f"{type(error).__name__}: {error}"])
    return seed, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--brief", action="store_true", help="one line a failing seed")
    parser.add_argument("--ps", action="store_true", help="jobs with parameter servers")
    parser.add_argument("--outages", action="store_true", help="the API server is often away")
    asked = parser.parse_args()
    kind = PsWorld if asked.ps else OutageWorld if asked.outages else World
    if asked.seed is not None:
        kind(asked.seed, asked.verbose).run() if asked.verbose else print(try_seed(asked.seed, kind)[1] or "ok")
        return 0
    began, failed = time.monotonic(), 0
    with multiprocessing.Pool(asked.jobs) as pool:
        tried = partial(try_seed, kind=kind)
        for seed, story in pool.imap(tried, range(asked.first, asked.first + asked.seeds), chunksize=8):
            if story:
                failed += 1
                print(f"--- seed {seed}\n{story}" if not asked.brief else f"{seed}: {story.splitlines()[-1][:330]}")
    spent = time.monotonic() - began
    print(f"{asked.seeds} seeds, {failed} failed, {spent:.1f} s, {asked.seeds / spent:.1f} seeds/s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
