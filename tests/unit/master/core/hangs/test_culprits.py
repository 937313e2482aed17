"""The culprit of a hang, found from the evidence of the ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.master.core.hangs.culprit import Finding, find
from outrider.master.core.hangs.evidence import place, read
from outrider.master.core.hangs.evidence_reader import rows, short
from outrider.master.core.state.generation import Place
from outrider.master.core.state.hangs import Rows
from outrider.wire.ids import MemberId, RankIndex, Role
from tests.unit.master.core.ranks import (
    Answers,
    body,
    call,
    elsewhere,
    holds_the_gil,
    is_stopped,
    mute,
    stack,
    trains_on,
    waits,
)

PATIENCE = 30.0
WORKER = Role("worker")


def world(ranks: int, nproc: int = 1) -> list[Place]:
    return [Place(MemberId(f"worker-{m}"), WORKER, RankIndex(m), m, m * nproc, nproc, m * nproc, ranks)
            for m in range(ranks // nproc)]  # fmt: skip


def parsed(bodies: dict[MemberId, str]) -> dict[MemberId, Rows]:
    known: dict[object, Any] = {}
    return {member: rows(text, known) for member, text in bodies.items()}


def finding(ranks: list[Answers], nproc: int = 1, without: tuple[int, ...] = (), done: tuple[str, ...] = ()) -> Finding:
    """The finding for these answers; `without`: members that do not answer at all."""
    places, bodies = world(len(ranks), nproc), {}
    for what in ("collectives", "stacks"):
        bodies[what] = parsed({
            p.member: body([ranks[p.first_rank + i].row(p.first_rank + i, i, what) for i in range(nproc)])
            for p in places if p.group_rank not in without
        })  # fmt: skip
    evidence = read(places, {MemberId(m) for m in done}, bodies["collectives"], bodies["stacks"])
    return find(evidence, PATIENCE, {MemberId("worker-1"): "n1"})


def test_the_rank_with_the_lower_number_is_late() -> None:
    found = finding([waits(14), elsewhere(13, line=40), waits(14)])
    assert found.member == "worker-1"
    assert found.is_certain
    assert found.sentence == (
        "rank 1 on worker-1 (node n1) has not entered gloo:all_reduce number 14 (train.py:33 main), in which 2 ranks "
        "wait; it is at train.py:40 load"
    )


def test_a_rank_that_never_called_a_collective_is_late_too() -> None:
    found = finding([waits(1), Answers([], stack(12, "prepare")), waits(1)])
    assert found.member == "worker-1"
    assert "has not entered gloo:all_reduce number 1" in found.sentence


def test_a_stopped_process_is_the_culprit_whatever_the_other_evidence_is() -> None:
    found = finding([waits(14), is_stopped()])
    assert (found.member, found.is_certain) == ("worker-1", True)
    assert found.sentence == (
        "rank 1 on worker-1 (node n1) is stopped (SIGSTOP, or a debugger); 1 other rank waits in gloo:all_reduce "
        "number 14 (train.py:33 main)"
    )


def test_if_no_rank_waits_for_a_stopped_process_the_sentence_says_only_that_it_is_stopped() -> None:
    found = finding([Answers([call(14, "completed")]), is_stopped()])
    assert found.sentence == "rank 1 on worker-1 (node n1) is stopped (SIGSTOP, or a debugger)"


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_rank_that_holds_the_gil_is_found_by_its_stack(size: int) -> None:
    found = finding([waits(14), holds_the_gil(41), *[waits(14)] * (size - 2)])
    assert (found.member, found.is_certain) == ("worker-1", True)
    assert "rank 1 on worker-1 (node n1) does not report its collectives" in found.sentence
    assert found.sentence.endswith("it is at train.py:41 match")


def test_without_a_recorder_the_stacks_decide() -> None:
    waiting = Answers(None)
    found = finding([waiting, holds_the_gil(41), waiting, waiting])
    assert (found.member, found.is_odd) == ("worker-1", True)
    assert found.sentence == (
        "rank 1 on worker-1 (node n1) differs from 3 other ranks (which wait at train.py:33 main); it is at "
        "train.py:41 match"
    )


def test_of_two_halves_the_one_outside_of_torch_is_the_outlier() -> None:
    assert finding([Answers(None), holds_the_gil()]).member == "worker-1"


def test_a_rank_that_answers_neither_question_is_the_culprit() -> None:
    found = finding([waits(14), mute(), waits(14)])
    assert (found.member, found.is_certain) == ("worker-1", True)
    assert found.sentence.endswith("it does not respond")


def test_a_member_that_does_not_answer_is_the_culprit_too() -> None:
    assert finding([waits(14), waits(14), waits(14)], without=(1,)).member == "worker-1"


def test_if_collectives_and_stacks_disagree_both_are_reported_without_a_culprit() -> None:
    odd = Answers([call(14)], stack(70, "log"))
    found = finding([waits(14), Answers([call(13, "completed")]), odd, waits(14), waits(14)])
    assert found.member is None
    assert found.is_certain
    assert "rank 1 on worker-1 (node n1) has not entered" in found.sentence
    assert "rank 2 on worker-2 is the outlier; the evidence disagrees" in found.sentence


def test_the_root_cause_is_the_late_rank_that_waits_in_no_collective() -> None:
    """Rank 2 cannot enter the collective of all ranks, because it waits in another group for rank 3."""
    of_two = {"id": "7", "group": "tp", "frame": "/data/train.py:60 exchange"}
    two = Answers([call(5, **of_two), call(13, "completed")], stack(60, "exchange"))
    three = Answers([call(4, "completed", **of_two), call(13, "completed")], stack(80, "read"))
    found = finding([waits(14), waits(14), two, three])
    assert found.member == "worker-3"
    assert "has not entered" in found.sentence


def test_groups_of_the_same_name_are_judged_apart() -> None:
    """Two pairs are both called tp: one may be ahead of the other."""
    one, other = {"id": "1", "group": "tp"}, {"id": "2", "group": "tp"}
    ranks = [Answers([call(9, **one)]), Answers([call(8, "completed", **one)], stack(40)),
             Answers([call(5, "completed", **other)]), Answers([call(5, "completed", **other)])]  # fmt: skip
    assert finding(ranks).member == "worker-1"


def test_the_recorder_may_list_the_ranks_of_a_group() -> None:
    pair = {"id": "1", "group": "tp", "ranks": [0, 1]}
    ranks = [Answers([call(1, **pair)]), Answers([], stack(40)), Answers([], stack(33)), Answers([], stack(33))]
    assert finding(ranks).member == "worker-1"


def test_of_mismatched_collectives_the_minority_is_the_culprit() -> None:
    other = Answers([call(14, op="gloo:barrier", sizes=[], frame="/data/train.py:25 sync")])
    found = finding([waits(14), other, waits(14)])
    assert (found.member, found.is_certain) == ("worker-1", True)
    assert "gloo:barrier number 14 (train.py:25 sync)" in found.sentence
    equal = finding([waits(14), other])
    assert (equal.member, equal.is_certain) == (None, True)


def test_late_ranks_of_one_member_make_it_the_culprit_those_of_two_members_do_not() -> None:
    late = elsewhere(13)
    assert finding([waits(14), waits(14), late, late], nproc=2).member == "worker-1"
    found = finding([waits(14), waits(14), waits(14), late, late])
    assert found.member is None
    assert "ranks 3, 4 on worker-3, worker-4 have not entered" in found.sentence


def test_if_all_ranks_have_entered_no_member_is_the_culprit() -> None:
    found = finding([waits(14), waits(14)])
    assert (found.member, found.is_certain) == (None, True)
    assert found.sentence.startswith("every rank has entered gloo:all_reduce number 14")


def test_a_rank_that_has_ended_is_the_culprit() -> None:
    found = finding([waits(14), waits(14)], done=("worker-1",))
    assert found.member == "worker-1"
    assert found.sentence.endswith("it has exited with code 0")


def test_a_rank_that_does_not_respond_while_no_rank_waits_is_an_outlier_but_not_certain() -> None:
    found = finding([Answers([], stack(9)), mute(), Answers([], stack(9))])
    assert (found.member, found.is_certain, found.is_odd) == ("worker-1", False, True)


def test_collectives_that_started_recently_are_not_a_hang() -> None:
    found = finding([trains_on(0.2), trains_on(0.1), Answers([call(15, age=0.1)])])
    assert found.moves
    assert not found.is_certain


def test_if_no_rank_waits_nothing_is_certain() -> None:
    found = finding([Answers([call(3, "completed")], stack(9, "evaluate"))] * 3)
    assert (found.member, found.is_certain, found.is_odd, found.moves) == (None, False, False, False)


def test_an_outlier_among_ranks_that_do_not_wait_is_named_only() -> None:
    found = finding([Answers([], stack(9, "evaluate")), Answers([], stack(9, "evaluate")), Answers([], stack(12))])
    assert (found.member, found.is_certain, found.is_odd) == ("worker-2", False, False)


def test_ranks_in_a_backward_pass_count_as_waiting() -> None:
    backward = stack(33).replace("in load", "in _engine_run_backward", 1)
    found = finding([Answers(None, backward), Answers(None, stack(7)), Answers(None, backward)])
    assert (found.member, found.is_certain, found.is_odd) == ("worker-1", False, True)


def test_ranks_that_wait_in_the_rendezvous_make_the_hang_certain() -> None:
    text = (
        stack(20).replace("in load", "in init_process_group").replace("/data/train.py", "/x/torch/distributed/c.py", 1)
    )
    found = finding([Answers([], text), Answers([], text), Answers([], stack(5, "download"))])
    assert (found.member, found.is_certain) == ("worker-2", True)


NONSENSE: list[Any] = [
    {}, [], None, "ranks", {"ranks": 7}, {"ranks": [7, None, {"local_rank": "0"}]},
    {"ranks": [{"local_rank": 0, "collective": 3, "groups": {"a": 1}, "stack": 9, "process": []}]},
    {"ranks": [{"local_rank": 0, "collective": {"seq": -1}, "groups": [{"seq": 1e400}, {"seq": True}]}]},
    {"ranks": [{"local_rank": 0, "collective": {}, "groups": [call(14, age=float("nan")), call(14, age=-5.0)]}]},
    {"ranks": [{"local_rank": 0, "collective": {}, "groups": [call(14, age="long", ranks="all")]}]},
    {"ranks": [{"local_rank": 0, "collective": {}, "groups": [call(14, age=10**400)]}]},
    {"ranks": [{"local_rank": 0, "used": {"cpu": 10**400, "io": "much", "net": [], "tree": None}, "frames": {}}]},
]  # fmt: skip


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_invalid_answer_is_ignored(nonsense: Any) -> None:
    bodies = parsed({MemberId("worker-0"): json.dumps(nonsense)})
    found = find(read(world(2), set(), bodies, bodies), PATIENCE, {})
    assert not found.is_certain


def test_an_answer_that_is_not_json_is_ignored() -> None:
    bodies = parsed({MemberId("worker-0"): "{" * 100_000})
    assert (
        find(read(world(1), set(), bodies, bodies), PATIENCE, {}).sentence
        == "no rank reports its stack or its collectives"
    )


def test_the_place_of_a_rank_is_a_frame_of_the_users_script() -> None:
    frames = ("/usr/lib/python3.12/re/__init__.py:167 match", "/x/site-packages/a.py:3 b", "/data/train.py:9 main")
    assert place(frames) == "train.py:9 main"
    assert short("train.py:9 main") == "train.py:9 main"
