"""`python -m tests.mutants [NAME…]`: the seed at which each planted bug is caught, within 1,000."""

from __future__ import annotations

import multiprocessing
import sys

from tests.mutants.planted import CAUGHT_AT, MUTANTS, OF_PS_JOBS, planted
from tests.simulation.__main__ import try_seed
from tests.simulation.ps import PsWorld
from tests.simulation.world import World


def caught_at(name: str, seeds: int = 1000) -> tuple[str, int | None, str]:
    """The first seed that fails with the bug and not without it, and what it says. The one that did so before first."""
    for seed in [CAUGHT_AT[name], *range(seeds)] if name in CAUGHT_AT else range(seeds):
        if sentence := catches(name, seed):
            return name, seed, sentence
    return name, None, ""


def catches(name: str, seed: int) -> str:
    """What this seed says of the bug; empty where it says nothing, or the same without it."""
    kind = PsWorld if name in OF_PS_JOBS else World
    with planted(MUTANTS[name]()):
        _, story = try_seed(seed, kind)
    return story.splitlines()[-1] if story and not try_seed(seed, kind)[1] else ""


def main() -> int:
    names = sys.argv[1:] or list(MUTANTS)
    missed = 0
    with multiprocessing.Pool(2) as pool:
        for name, seed, sentence in pool.imap_unordered(caught_at, names):
            missed += seed is None
            print(f"{name:32} {'MISSED' if seed is None else seed}  {sentence[:160]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
