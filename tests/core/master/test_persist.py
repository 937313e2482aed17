"""What one master leaves to the next: statuses that were written before load as they did then."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.state.job import State
from outrider.master.core.status import persist
from tests.core.master.play import job

STATUSES = Path(__file__).with_name("statuses")
NOW, UNIX_TIME = 5_000.0, 1_700_100_000.0


def begun(saved: dict[str, Any]) -> State:
    """A new master that has read this."""
    state = State(now=NOW)
    spec = job(4, metrics_pattern=saved.get("metrics", [""])[0], scaling="throughput")
    persist.begin(state, 7, spec, UNIX_TIME, {"saved": saved})
    return state


def plain(value: object, default: object = None) -> Any:
    """As JSON has it, of a record what is not as by default."""
    if dataclasses.is_dataclass(value):
        here = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {name: plain(held, getattr(default, name, None)) for name, held in sorted(here.items())
                if not hasattr(default, name) or held != getattr(default, name)}  # fmt: skip
    if isinstance(value, dict):
        return {str(key): plain(held) for key, held in value.items()}
    if isinstance(value, set):
        return sorted(map(plain, value))
    return [plain(each) for each in value] if isinstance(value, (list, tuple, deque)) else value


@pytest.mark.parametrize("name", sorted(path.stem for path in STATUSES.iterdir()))
def test_a_status_that_was_written_before_loads_as_it_did_then(name: str) -> None:
    golden = json.loads((STATUSES / f"{name}.json").read_text())
    state = begun(golden["saved"])
    assert plain(state, State(spec=state.spec)) == golden["restored"]
