"""A job's history says when each rank index did what, and of each fault who, where, why and at what cost."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from outrider.master.core.actions import SaveHistory
from outrider.master.core.history import document, tracks
from outrider.master.core.k8s.elasticjob import history as stored
from outrider.master.core.state.history import Track
from tests.unit.master.core.play import Play, running


def written(play: Play) -> dict[str, Any]:
    """The newest part, as the shell gets it."""
    part = [action.part for action in play.actions if isinstance(action, SaveHistory)][-1]
    found: dict[str, Any] = json.loads(json.dumps(part))
    return found


def now(play: Play) -> dict[str, Any]:
    return document.part(play.state, play.now)


def test_the_spans_of_a_rank_index_have_no_gap_and_add_up_to_its_account() -> None:
    play = running(2)
    play.run(5)
    play.crash("worker-1")
    play.until_next(2)
    play.run(20)
    part = now(play)
    seconds: dict[str, float] = {}
    for row in part["tracks"]:
        ends = [*(begin for begin, _cause in row["spans"][1:]), row["end"]]
        seats = sum(last - first + 1 for first, last in row["seats"])
        for (begin, cause), end in zip(row["spans"], ends, strict=True):
            assert end >= begin
            name = part["causes"][cause]
            seconds[name] = seconds.get(name, 0.0) + seats * (end - begin) / 10
    account = play.status()["time"]
    assert sum(seconds.values()) == pytest.approx(sum(account.values()), abs=0.5)
    for cause in ("productive", "starting", "repeated_steps"):
        assert seconds[cause] == pytest.approx(account[cause], abs=2.5)


def test_a_fault_has_its_member_rank_node_error_stages_and_cost() -> None:
    play = running(2)
    play.crash("worker-1", code=1, signal=None, error="ValueError", message="bad <b>batch</b>")
    play.until_next(2)
    play.run(15)
    (fault,) = written(play)["faults"]
    assert (fault["kind"], fault["member"], fault["rank_index"], fault["ranks"]) == ("WorkerExited", "worker-1", 1, [1])
    exit = fault["evidence"][0]
    assert (exit["error"], exit["frame"]) == ("ValueError: bad <b>batch</b>", "train.py:7 main")
    assert exit["traceback"]
    assert set(fault["stages"]) >= {"detect", "stop", "wait", "agree", "start", "first_step", "new_step"}
    assert fault["recovered_at"] >= fault["at"]
    assert fault["cost"]["repeated_steps"] > 0
    assert "productive" not in fault["cost"]
    (recovered,) = [sentence for _at, kind, sentence in fault["decisions"] if kind == "Recovered"]
    assert f"past step {fault['step']}, where it was" in recovered
    assert [kind for _at, kind, _sentence in fault["decisions"]][:1] == ["WorkerExited"]


def test_the_root_cause_that_is_found_later_replaces_the_first_one() -> None:
    play = running(3, 2, max_relaunches=0)
    play.crash("worker-1")
    play.lose("worker-1")
    play.run(20)
    (fault,) = now(play)["faults"]
    assert fault["kind"] == "MemberLost"
    assert [row["sentence"] for row in fault["evidence"]] == ["signal 9"]


def test_an_ended_job_writes_its_history_last() -> None:
    play = running(2)
    for member in list(play.world):
        play.done(member)
    play.until(lambda: play.is_ended)
    kinds = [type(action).__name__ for action in play.actions]
    assert kinds.index("EndJob") > len(kinds) - 1 - kinds[::-1].index("SaveHistory")
    assert written(play)["events"][-1][1] == "JobSucceeded"


def test_a_calm_job_writes_seldom() -> None:
    play = running(2)
    play.run(3600)
    assert len([action for action in play.actions if isinstance(action, SaveHistory)]) <= 8


def test_a_track_of_a_long_job_stays_short_and_has_no_gap() -> None:
    rng, track, at = random.Random(1), Track(), 0.0
    for _ in range(50_000):
        until = at + rng.choice((0.05, 0.3, 1.0, 30.0))
        tracks.add(track, rng.choice(("productive", "data_wait", "hang")), at, until)
        at = until
        assert len(track.spans) <= tracks.MOST_SPANS
    begins = [begin for begin, _cause in track.spans]
    assert begins == sorted(begins)
    assert (begins[0], track.end) == (0.0, at)


def test_rank_indexes_that_did_the_same_share_a_row() -> None:
    play = running(100)
    play.run(30)
    part = now(play)
    assert len(part["tracks"]) < 20
    assert sum(last - first + 1 for row in part["tracks"] for first, last in row["seats"]) == 100


# -- stored in a cluster --------------------------------------------------------------------------------------------
def test_a_packed_part_is_read_back_as_it_was() -> None:
    play = running(2)
    play.crash("worker-0")
    play.run(10)
    part = json.loads(json.dumps(now(play)))
    assert stored.unpacked(stored.packed(part), 1 << 20) == part


def test_evidence_goes_first_where_a_part_is_too_large_and_the_oldest_goes_before() -> None:
    play = running(2)
    play.crash("worker-0")
    play.run(10)
    part = json.loads(json.dumps(now(play)))
    rng = random.Random(2)
    noise = [{"what": "exit", "traceback": rng.randbytes(2000).hex()} for _ in range(30)]
    part["faults"] = [{**part["faults"][0], "at": number, "evidence": [row]} for number, row in enumerate(noise)]
    most = 40_000
    text = stored.packed(part, most)
    assert len(text) <= most
    kept = stored.unpacked(text, 1 << 20)
    assert [fault["at"] for fault in kept["faults"] if fault["evidence"]] == list(range(20, 30))
    assert kept["tracks"] == part["tracks"]


@pytest.mark.parametrize("text", ["", "AAAA", "not base64!", stored.packed({"faults": [], "tracks": [0] * 99})[:-8]])
def test_what_is_no_packed_part_is_an_error_of_one_kind(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        stored.unpacked(text, 1 << 20)


def test_a_part_that_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        stored.unpacked(stored.packed({"faults": [], "tracks": [0] * 9999}), 1000)


def test_the_oldest_parts_are_dropped_when_all_are_too_large() -> None:
    parts = {f"term-{n}": "x" * 200_000 for n in (9, 10, 2, 11)}
    assert stored.to_drop(parts, "term-11") == ["term-2"]
    assert stored.to_drop({"term-1": "x" * 700_000, "term-2": "x"}, "term-1") == ["term-2"]
