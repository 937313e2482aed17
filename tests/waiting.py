"""How tests wait: for an event, never for a time. A test that reaches the deadline has found a bug, in itself or us."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 240.0
"""Seconds; no wait of a test has less, so that a busy machine fails none."""


async def until(claim: Callable[[], T], what: Callable[[], object] | None = None) -> T:
    """The first answer that is true. `what` tells what there is instead, where it does not come."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not (found := claim()):
                await asyncio.sleep(0.005)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE:g} s: {what() if what else _source(claim)}") from None


def _source(claim: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(claim).split())
    except OSError:
        return repr(claim)
