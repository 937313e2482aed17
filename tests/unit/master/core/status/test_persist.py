"""What one master leaves to the next.

Each field of the State declares its durability, and statuses that were written earlier load as they did then."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.events import Began
from outrider.master.core.state import durability
from outrider.master.core.state.generation import Fault
from outrider.master.core.state.job import State
from outrider.master.core.status import persist
from outrider.wire.ids import Generation
from tests.unit.master.core.play import job

STATUSES = Path(__file__).with_name("statuses")
NOW, UNIX_TIME = 5_000.0, 1_700_100_000.0


def begun(saved: dict[str, Any]) -> State:
    """A new master's state after it has read this status."""
    state = State(now=NOW)
    spec = job(4, metrics_pattern=saved.get("metrics", [""])[0], scaling="throughput")
    persist.begin(state, Began(7, spec, {"saved": saved}, UNIX_TIME))
    return state


def plain(value: object, default: object = None) -> Any:
    """The value as JSON; of a record only the fields that differ from their defaults."""
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


def declared(of: object, path: str = "") -> Iterator[tuple[str, str]]:
    """The durability of each field and of those of its parts."""
    for each in dataclasses.fields(of):  # type: ignore[arg-type]
        kind = each.metadata["durability"].kind if "durability" in each.metadata else "undeclared"
        if kind == "part":
            yield from declared(getattr(of, each.name), f"{path}{each.name}.")
        else:
            yield f"{path}{each.name}", kind


def test_every_field_of_the_state_declares_its_durability() -> None:
    fields = dict(declared(State()))
    assert set(fields.values()) == {"durable", "transient", "inherited", "special"}
    assert {name for name, kind in fields.items() if kind == "special"} == {
        "term", "stage", "phase", "exit_code", "members", "metrics", "world", "left", "hangs.watch",
        "account", "history", "status.saved_version",
    }, "what persist writes or reads in its own way"  # fmt: skip


@pytest.mark.parametrize("kind", ["transient", "special"])
def test_transient_fields_contain_no_durable_ones(kind: str) -> None:
    """Durable fields are only read within parts."""
    for each in dataclasses.fields(State):
        held = getattr(State(), each.name)
        if each.metadata["durability"].kind == kind and dataclasses.is_dataclass(held) and each.name != "metrics":
            assert "durable" not in {how for _name, how in declared(held)}, each.name


def test_a_saved_moment_is_never_in_the_future_and_a_deadline_may_be() -> None:
    clock = durability.Clock(now=100.0, offset=1_000.0)
    reported = durability.write(list[durability.Moment], [90.0, float("-inf"), 130.0], clock)
    assert reported == [1_090.0, None, 1_130.0]
    assert durability.read(list[durability.Moment], reported, clock) == [90.0, float("-inf"), 100.0]
    assert durability.read(durability.Deadline, 1_130.0, clock) == 130.0


def test_a_reader_ignores_unknown_values_and_keeps_defaults_for_missing_ones() -> None:
    clock = durability.Clock(0.0, 0.0)
    reported = durability.write(list[Fault], [Fault(0.0, "K", None, "R", Generation(1, 2), 3.0, "n")], clock)
    assert reported == [[0.0, "K", None, "R", 1, 2, 3.0, "n"]]
    assert durability.read(list[Fault], [[*reported[0], "more"]], clock) == durability.read(
        list[Fault], reported, clock
    )
    assert durability.read(list[Fault], [reported[0][:6]], clock) == [Fault(0.0, "K", None, "R", Generation(1, 2))]
