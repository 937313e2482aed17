"""States as JSON and back: equal, with their shared parts, and nothing but the declared types."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.events import Event, PodsListed, Woke
from outrider.master.core.ps.state import PsState
from outrider.master.core.state.generation import Fault, Incident
from outrider.master.core.state.job import State
from outrider.master.recording import codec
from outrider.master.recording.scrubbing import Scrubber
from outrider.runtime.journal import text
from outrider.wire import reader
from outrider.wire.ids import Generation
from tests.unit.master.core.play import Play, job
from tests.unit.master.core.ps_play import PsPlay, ps_job
from tests.unit.master.recording.open_scrubber import Open


def again(kind: Any, value: object) -> Any:
    return codec.decoded(kind, json.loads(json.dumps(codec.encoded(kind, value, Open()))))


@pytest.mark.parametrize("made", [lambda: Play(job(3)), lambda: PsPlay(ps_job())], ids=["allreduce", "ps"])
def test_a_state_is_the_same_again(made: Any) -> None:
    play = made()
    play.until(lambda: play.step() > 3)
    play.crash("worker-1")
    play.run(20.0)
    assert text(again(type(play.state), play.state)) == text(play.state)


def test_what_all_tasks_of_a_ps_job_share_is_shared_again() -> None:
    play = PsPlay(ps_job())
    play.until(lambda: play.step() > 3)
    state = again(PsState, play.state)
    crowds = {id(task.state.membership.crowd) for task in state.tasks.values()}
    assert crowds == {id(state.crowd)}
    assert all(task.state.faults.restarts is state.restarts for task in state.tasks.values())


def test_a_fault_that_is_noted_twice_is_one_object_again() -> None:
    state = State()
    fault = Fault(1.0, "WorkerExited", None, "", Generation(1, 1))
    state.faults.noted.append(fault)
    state.faults.incident = Incident(Generation(1, 1), fault, 1.0)
    found = again(State, state).faults
    assert found.incident.fault is found.noted[0]


def test_infinite_moments_are_valid_json() -> None:
    assert text(again(PsState, PsState())) == text(PsState())


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"@": "os.system", "command": "id"}, "'os.system': must be the name of a known type"),
        ({"@": "events.Woke", "more": 1}, "'more': must be fields of events.Woke"),
        ({"@": "events.Stalled"}, "events.Stalled: Required value"),
        ({"@": "events.Stalled", "seconds": "long"}, "events.Stalled.seconds: Invalid value: 'long'"),
        ({"@": "events.StatusSaved", "version": 1 << 70}, "must be an integer of 64 bits"),
        ({"@": "events.PodsListed", "pods": {"&": 3}}, "must be the number of an object before it"),
        ([], "must be the name of a known type"),
    ],
)
def test_what_is_no_event_is_refused_with_its_path(value: object, error: str) -> None:
    with pytest.raises(reader.Wrong, match=re.escape(error)):
        codec.decoded(Event, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["@", "#", "&", "v", "spec", "members", "deadlines", "message"]) | st.text(max_size=4), inner,
        max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_random_json_is_refused_or_is_a_state(value: Any) -> None:
    for kind in (State, Event):
        try:
            codec.decoded(kind, value)
        except (reader.Wrong, TypeError):
            pass


def test_events_of_the_simplest_kind_take_few_bytes() -> None:
    assert codec.encoded(Event, Woke(), Scrubber()) == {"@": "events.Woke"}
    assert codec.encoded(Event, PodsListed(()), Scrubber()) == {"@": "events.PodsListed", "pods": []}
