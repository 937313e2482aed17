"""A recording is replayed by the real core; a changed core, a cut recording and another version are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

import outrider
from outrider.master.core.events import Woke
from outrider.master.recording import reading, recorder
from outrider.master.recording.reading import Recording, WrongRecording
from outrider.master.recording.replay import replayed
from outrider.runtime.journal import Journal
from tests.unit.master.core.play import job
from tests.unit.master.core.ps_play import ps_job
from tests.unit.master.core.test_journal import Kept, KeptPs, hurt


def lines(journal: Journal, most: int = recorder.MOST_BYTES) -> list[bytes]:
    return [line for line in recorder.lines(journal.taken(), most) if line]


def recorded(made: Callable[[], Kept]) -> list[bytes]:
    play = made()
    hurt(play)
    return lines(play.journal)


@pytest.fixture(scope="module")
def of_a_crash() -> list[bytes]:
    return recorded(lambda: Kept(job(3)))


@pytest.mark.parametrize("made", [lambda: Kept(job(3)), lambda: KeptPs(ps_job())], ids=["allreduce", "ps"])
def test_the_core_decides_as_recorded_from_a_state_in_the_middle(made: Callable[[], Kept]) -> None:
    recording = reading.read(recorded(made))
    found = list(replayed(recording))
    assert len(found) == len(recording.steps) > 20
    assert not [each for each in found if each.differs or each.failure]
    assert any(each.step.actions for each in found)


def test_a_core_that_decides_otherwise_is_reported_at_that_event(of_a_crash: list[bytes]) -> None:
    at = next(number for number, line in enumerate(of_a_crash) if b"actions.Send" in line)
    changed = of_a_crash[at].replace(b"actions.Send", b"actions.HidePod")
    recording = reading.read([*of_a_crash[:at], changed, *of_a_crash[at + 1 :]])
    (different,) = [each for each in replayed(recording) if each.differs]
    assert different.recorded
    assert "HidePod" in str(different.recorded)


def test_an_event_at_which_the_core_fails_ends_the_replay_with_its_error(of_a_crash: list[bytes]) -> None:
    recording = reading.read(of_a_crash)
    recording.steps[3] = replace(recording.steps[3], event="no event")  # type: ignore[arg-type]
    found = list(replayed(recording))
    assert len(found) == 4
    assert found[3].failure


def refused(raw: list[bytes]) -> str:
    with pytest.raises(WrongRecording) as wrong:
        reading.read(raw)
    return str(wrong.value)


def with_head(raw: list[bytes], **changes: object) -> list[bytes]:
    return [json.dumps({**json.loads(raw[0]), **changes}).encode(), *raw[1:]]


def test_another_format_or_version_is_refused(of_a_crash: list[bytes]) -> None:
    assert "reads version 1" in refused(with_head(of_a_crash, version=2))
    assert "does not begin like" in refused(with_head(of_a_crash, format="other"))
    assert "unknown kind 'Thing'" in refused(with_head(of_a_crash, kind="Thing"))
    older = with_head(of_a_crash, outrider="0.0.1")
    assert f"Outrider 0.0.1 made it, and this is {outrider.__version__}" in refused(older)
    assert isinstance(reading.read(older, any_version=True), Recording)


def test_a_recording_that_was_cut_off_is_refused(of_a_crash: list[bytes]) -> None:
    assert "cut off after" in refused(of_a_crash[:-1])
    assert "cut off at its beginning" in refused(of_a_crash[:1])
    assert "cut off at its beginning" in refused([])
    assert "is not JSON" in refused([*of_a_crash[:5], of_a_crash[5][:20]])
    assert "ends after" in refused([*of_a_crash[:5], *of_a_crash[6:]])


def test_wrong_values_are_refused_with_their_path(of_a_crash: list[bytes]) -> None:
    wrong = json.dumps([1.0, ">", {"@": "events.Stalled", "seconds": {}}]).encode()
    assert "events.Stalled.seconds: Invalid value: a map" in refused([*of_a_crash[:2], wrong])
    assert "is not [time, mark, value]" in refused([*of_a_crash[:2], b"[1]"])
    assert "invalid value" in refused([of_a_crash[0], json.dumps({"state": {"members": [[[], {}]]}}).encode()])


def test_a_recording_is_bounded_and_says_what_it_left_out() -> None:
    play = Kept(job(3))
    hurt(play)
    recording = reading.read(lines(play.journal, most=20_000))
    assert recording.left_out > 0
    assert 0 < len(recording.steps) < len(reading.read(lines(play.journal)).steps)
    assert not [each for each in replayed(recording) if each.differs and each.step is not recording.steps[-1]]


def test_what_is_no_journal_of_a_master_makes_no_recording() -> None:
    journal = Journal()
    assert lines(journal) == []
    journal.follow(lambda: "a state of another core")
    journal.event(1.0, Woke())
    assert lines(journal) == []
