"""What a reader finds in the text of a report, without scripts and colours."""

from __future__ import annotations

import json
from typing import Any

from outrider.master.core.account import causes
from outrider.master.core.account import stages as core_stages
from outrider.report import drawing
from outrider.report.job import Sources, job_of
from outrider.report.words import CAUSES, STAGES
from tests.unit.report.documents import BEGAN, NAMES, at, fault, hang, made, part, spans, status
from tests.unit.report.reader import Page


def text_of(*documents: Any, **more: Any) -> str:
    return Page(made(*documents, **more)).text


def test_each_cause_and_stage_of_a_master_has_its_words() -> None:
    assert tuple(CAUSES) == causes.CAUSES
    assert tuple(STAGES) == tuple(core_stages.WHAT)


def test_the_summary_says_how_the_job_ended_and_where_its_time_went() -> None:
    text = text_of(status(4), part(4))
    assert "digits succeeded after 1 h 07 min, with exit code 0." in text
    assert "It made 12,400 steps and repeated 40, in 2 generations with 4 members." in text
    assert "New steps took 90.0 % of the 4 h 27 min of all members (goodput)." in text
    assert "It had 1 fault that cost 14.5 s (0.4 % of its time)." in text


def test_faults_after_which_no_new_step_came_are_counted() -> None:
    open_ = [fault(1000.0 * n, seconds_lost=None) for n in (1, 2)]
    assert "It had 1 fault. No new step is known after it." in text_of(status(4), part(4, open_[:1]))
    assert "It had 2 faults. No new step is known after any of them." in text_of(status(4), part(4, open_))
    both = text_of(status(4), part(4, [fault(500.0), *open_]))
    assert "It had 3 faults that cost 14.5 s (0.4 % of its time). No new step is known after 2 of them." in both


def test_kind_rank_and_node_of_each_fault_are_in_the_text() -> None:
    lost = fault(3000.0, 5, kind="MemberLost", ranks=[10, 11], node="node-x", reason="Its pod is gone.",
                 pod={"phase": "Failed", "reason": "Evicted", "exit_code": 137})  # fmt: skip
    text = text_of(status(8), part(8, [fault(1000.0, 2), hang(2000.0), lost]))
    assert "Kind: WorkerExited Rank: 2 Rank index: 2 Member: worker-2 Node: node-2 Generation: 1.1" in text
    assert "Kind: HangDetected Rank: 3 Rank index: 3 Member: worker-3 Node: node-3" in text
    assert "Kind: MemberLost Rank: 10–11 Rank index: 5 Member: worker-5 Node: node-x" in text
    assert "Pod: Failed, Evicted, exit code 137" in text


def test_evidence_decisions_stages_and_cost_are_in_the_text() -> None:
    text = text_of(status(8), part(8, [fault(1000.0, 2), hang(2000.0)]))
    assert "rank 2 on worker-2: exit code 1. RuntimeError: CUDA error at train.py:61 in main" in text
    assert "an illegal memory access was encountered" in text
    assert "ranks 0–2, 4–7 on worker-0, worker-1, worker-2, worker-4, …: step; ALLREDUCE number 812" in text
    assert "+0.100 s GenerationStopped All ranks are stopped, because one of them ended." in text
    assert "new_step 8.2 s for repeated steps" in text
    assert "The longest stage was detect (until the fault was noticed): 1 min 00 s." in text
    assert "repeated_steps 32.8 s" in text


def test_the_rank_is_the_cause_s_and_effects_at_one_place_are_one() -> None:
    def ended(rank: int, *, effect: bool) -> dict[str, Any]:
        return {"what": "exit", "member": f"worker-{rank // 2}", "rank": rank, "frame": "train.py:61", "step": 4,
                "sentence": f"exit code 1{', as an effect' * effect}", "traceback": f"T{rank}",
                "error": f"RuntimeError: port 31{rank}" if effect else "ValueError: x"}  # fmt: skip

    evidence = [ended(5, effect=False), *(ended(rank, effect=True) for rank in (0, 1, 3, 4))]
    one = fault(1000.0, 2, ranks=[4, 5], evidence=evidence, reason="Rank 5 on worker-2 failed with ValueError: x.")
    text = text_of(status(3), part(3, [one]))
    assert "Kind: WorkerExited Rank: 5 Rank index: 2" in text
    assert "rank 5 on worker-2: exit code 1. ValueError: x" in text
    assert "ranks 0–1, 3–4 on worker-0, worker-1, worker-2: exit code 1, as an effect. RuntimeError: port 310" in text
    assert "T1" not in text


def test_a_fault_of_the_status_alone_is_shown_without_evidence() -> None:
    listed = {
        "time": at(500.0),
        "kind": "MemberLost",
        "member": "worker-1",
        "reason": "Rank 3 on worker-1 ended.",
        "seconds_lost": 9.0,
    }
    text = text_of(status(4, faults=[listed]), part(4))
    assert "1. MemberLost of worker-1" in text
    assert "Kind: MemberLost Rank: 3 Rank index: 1 Member: worker-1 Node: node-1" in text
    assert "No evidence was recorded: only the status knows this fault." in text


def test_a_fault_of_both_is_shown_once_with_what_the_status_learned_later() -> None:
    listed = {
        "time": at(1000.0),
        "kind": "WorkerExited",
        "member": "worker-2",
        "reason": "x",
        "seconds_lost": 3.25,
        "stages": {},
    }
    page = text_of(status(4, faults=[listed]), part(4, [fault(1000.0, seconds_lost=None, stages={})]))
    assert page.count("Kind: WorkerExited") == 1
    assert "It cost 3.2 s" in page


def test_the_elasticjob_of_a_cluster_is_read_by_its_names() -> None:
    job = {
        "metadata": {"name": "digits"},
        "status": {"phase": "Running", "generation": "1.2", "step": 7, "restarts": 1, "exitCode": None, "goodput": 0.5,
                   "time": {"productive": 50.0, "waiting": 50.0},
                   "members": [{"id": "worker-1", "rankIndex": 3, "state": "running", "node": "n3"}],
                   "faults": [{"time": at(10.0), "kind": "MemberLost", "member": "worker-1", "reason": "gone",
                               "secondsLost": 2.5}]},
    }  # fmt: skip
    text = text_of(job, where="ElasticJob research/digits")
    assert "digits is running" in text
    assert "Rank index: 3 Member: worker-1 Node: n3" in text
    assert "It cost 2.5 s" in text


# -- edges ---------------------------------------------------------------------------------------------------------
def test_a_job_that_never_trained() -> None:
    text = text_of(status(2, step=0, phase="failed", exit_code=1, message="the script is not there",
                          time={"starting": 20.0, "importing": 5.0}), part(2, []))  # fmt: skip
    assert "digits failed after 1 h 07 min, with exit code 1." in text
    assert "Its last message: the script is not there" in text
    assert "It never trained: no step was made." in text
    assert "It had no fault." in text


def test_a_job_of_one_step() -> None:
    assert "Only one step was made, so the shares of time say little." in text_of(status(2, step=1), part(2, []))


def test_clocks_that_differ_between_masters() -> None:
    later = part(4, [], term=2, since=BEGAN + 3950, until=8000.0, began_at=BEGAN + 30)
    text = text_of(status(4), part(4), later)
    assert "The clock of master 2 is at least 50.0 s behind that of master 1" in text
    assert "Master 2 says that the job began 30.0 s later than master 1 says" in text


def test_what_a_killed_master_had_not_written() -> None:
    text = text_of(status(4), part(4, [], until=100.0), part(4, [], term=2, since=BEGAN + 116.0, until=300.0))
    assert "The timeline lacks the 16.0 s before master 2: master 1 had not written them when it ended" in text


def test_parts_that_are_missing_or_cut() -> None:
    first, last = part(4, [], term=2, since=BEGAN + 100), part(4, [], term=5, since=BEGAN + 4000, tracks=[])
    text = text_of(status(4), first, last)
    assert "There is no history of the first 1 min 40 s, before master 2" in text
    assert "There is no history between master 2 and master 5." in text
    assert "The part of master 5 has no timeline" in text


def test_a_job_of_an_older_release() -> None:
    text = text_of(status(4, time={}))
    assert "There is no history of this job" in text
    assert "The status has no time account: an older release wrote it" in text


def test_ten_thousand_members_share_rows() -> None:
    tracks = [{"seats": [[n, n]], "spans": [[n % 977, 1], [1000 + n % 977, 0]], "end": 40_000} for n in range(10_000)]
    html = made(status(10_000) | {"members": []}, part(10_000, [], tracks=tracks, holders=[]))
    text = Page(html).text
    assert "10,000 rows are drawn as 500: of each 20 neighbours the one with the least new steps is shown." in text
    assert "10,000 rank indexes in 500 rows" in text
    assert len(html) < 500_000


def test_causes_of_a_newer_version_have_their_name() -> None:
    newer = part(2, [], version=2, causes=[*NAMES, "frozen_in_ice"], tracks=[
        {"seats": [[0, 1]], "spans": [[0, 1], [50, len(NAMES)], [300, 0]], "end": 40_000}])  # fmt: skip
    text = text_of(status(2, time={"productive": 10.0, "frozen_in_ice": 5.0}), newer)
    assert "This release does not know the causes frozen_in_ice: a newer one wrote the history." in text
    assert "history-1.json has version 2, and this release reads version 1" in text
    assert "frozen_in_ice 5.0 s 33.3 % not known to this release" in text


def test_a_timeline_that_is_old_says_so() -> None:
    text = text_of(status(4, phase="running", exit_code=None), part(4), now=BEGAN + 5000)
    assert "The timeline ends 16 min 40 s before this report was made" in text


# -- the drawn timeline --------------------------------------------------------------------------------------------
def drawn(*documents: Any) -> Any:
    return json.loads(Page(made(*documents)).scripts[0])


def test_rank_indexes_that_did_the_same_share_a_row() -> None:
    data = drawn(status(8), part(8, [fault(1000.0, 2)]))
    assert [row[0] for row in data["rows"]] == ["0–1", "2", "3–7"]
    assert data["faults"] == [[10_000, 1, "WorkerExited", 2]]
    assert [each[1] for each in data["generations"]] == ["1.1", "1.2"]


def test_the_time_between_two_masters_is_unknown() -> None:
    first = part(1, [], until=100.0, tracks=[{"seats": [[0, 0]], "spans": [[0, 0]], "end": 1000}])
    second = part(1, [], term=2, since=BEGAN + 160, until=300.0,
                  tracks=[{"seats": [[0, 0]], "spans": [[1600, 0]], "end": 3000}])  # fmt: skip
    data = drawn(status(1), second, first)
    assert data["rows"][0][2] == [0, 0, 1000, NAMES.index("unknown"), 600, 0]
    assert data["end"] == 3000


def test_a_rank_index_that_came_later_is_blank_before() -> None:
    tracks = [
        {"seats": [[0, 0]], "spans": [[0, 0]], "end": 1000},
        {"seats": [[1, 1]], "spans": [[400, 1]], "end": 1000},
    ]
    data = drawn(status(2), part(2, [], until=100.0, tracks=tracks))
    blank = data["rows"][1][2][1]
    assert data["causes"][blank] == ["", "c-none"]


def test_a_large_job_with_many_faults_stays_below_half_a_megabyte() -> None:
    noted = [
        fault(150.0 * n, n * 25, evidence=[*fault(0.0)["evidence"] * 8, *hang(0.0, 16)["evidence"]])
        for n in range(1, 21)
    ]
    for number, each in enumerate(noted):
        for row in each["evidence"]:
            row |= {"stack": [f"frame {number} <{'&' * 380}>"] * 12, "traceback": f"{number} " + "'<\"" * 1300}
    tracks = [
        {"seats": [[n, n]], "spans": spans([150.0 * m for m in range(1, 21)], 4000.0, late=n)[:39], "end": 40_000}
        for n in range(512)
    ]  # fmt: skip
    html = made(status(512), part(512, noted, tracks=tracks))
    assert len(html.encode()) <= 500_000
    page = Page(html)
    assert page.text.count("Kind: WorkerExited") == 20
    assert "Evidence was cut to keep this file small" in page.text


def test_the_numbers_of_the_log_are_drawn_over_time_through_all_masters() -> None:
    first = part(4, numbers=[{"name": "loss", "points": [[BEGAN + n, 4.0 - n / 100] for n in range(200)]}])
    second = part(
        4, term=2, numbers=[{"name": "loss", "points": [[BEGAN + 300, 0.125]]}, {"name": "rate", "points": []}]
    )
    text = text_of(status(4), first, second)
    assert "Numbers of the log" in text
    assert "loss 0.125 at last, 0.125 to 4" in text
    assert "rate" not in text[text.index("Numbers of the log") :][:200]


def test_a_curve_stays_in_its_box_whatever_its_values_are() -> None:
    flat = {"name": "flat", "points": [[BEGAN, 1.0], [BEGAN, 1.0], [BEGAN + 1, 1.0]]}
    wild = {"name": "wild", "points": [[BEGAN + n, (-1) ** n * 1e10] for n in range(2000)] + [["x", 1], [BEGAN, None]]}
    job = job_of(Sources(status(4), [("history-1", part(4, numbers=[flat, wild]))]), BEGAN + 4001)
    drawn = {each.name: each for each in drawing.curves(job)}
    assert drawn["flat"].path == "M0.0 100.0 1000.0 100.0"
    places = [float(each) for each in drawn["wild"].path.removeprefix("M").split()]
    assert len(places) <= 2 * drawing.MOST_POINTS
    assert (min(places), max(places)) == (0.0, 1000.0)
    assert max(places[1::2]) <= 100.0
