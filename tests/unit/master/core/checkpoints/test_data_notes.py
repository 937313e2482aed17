"""What users read about data positions and batch sizes, and which of them the ranks are to keep."""

from __future__ import annotations

from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.generation import Start
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, running


def says(play: Play, word: str, sentence: str = "epoch 0 starts over", warning: bool = False, samples: int = 0) -> None:
    play.say(play["worker-0"], DataSaid(play.generation, 0, word, sentence, warning, samples))


def test_elastic_data_is_off_unless_the_user_requests_it() -> None:
    play = Play(job(2))
    play.until_running(2)
    assert {(s.message.elastic_data, s.message.keep_batch_of) for s in play.sent(Start)} == {(False, 0)}  # type: ignore[union-attr]


def test_every_master_sends_the_first_world_size_to_every_later_generation() -> None:
    play = Play(job(4, 3, elastic_data=True, keep_global_batch=True, max_relaunches=0))
    play.until_running(4)
    play.lose("worker-3")
    play.until_next(3)
    play = successor(play)
    play.run(3)
    play.crash("worker-1")
    play.until_next(3)
    sent = {(s.message.elastic_data, s.message.keep_batch_of, s.message.world_size) for s in play.sent(Start)}  # type: ignore[union-attr]
    assert sent == {(True, 4, 3)}


def test_each_report_is_announced_once_and_repeated_samples_are_counted_once() -> None:
    play = running(2)
    for _ in range(2):
        says(play, "repeated", samples=72)
    says(play, "ignored", "the file is damaged", warning=True)
    (line,) = play.announced("SamplesRepeated")
    assert line.reason == "Epoch 0 starts over."
    assert play.announced("DataPositionIgnored")[0].severity == "warning"
    data = play.status()["data"]
    assert (data["samples_repeated"], [note["kind"] for note in data["notes"]]) == (
        72, ["SamplesRepeated", "DataPositionIgnored"],
    )  # fmt: skip


def test_an_unknown_report_and_one_of_an_older_generation_are_ignored() -> None:
    play = running(2)
    old = play.generation
    says(play, "a newer word")
    play.crash("worker-0")
    play.until_next(2)
    play.say(play["worker-0"], DataSaid(old, 0, "loaded", "late"))
    assert play.status()["data"]["notes"] == []


def test_the_next_master_knows_what_was_reported() -> None:
    play = running(2)
    says(play, "repeated", samples=72)
    after = successor(play)
    assert after.status()["data"]["samples_repeated"] == 72


OVER = "/data/last.pt is written over"


def in_place(play: Play) -> dict[str, str]:
    return dict(play.status().get("non_atomic_saves", {}))


def test_saves_in_place_are_in_the_status_until_one_is_atomic() -> None:
    play = running(2)
    says(play, "not atomic", OVER, warning=True)
    assert in_place(play) == {"worker-0": OVER}
    assert play.announced("CheckpointsNotAtomic")[0].severity == "warning"
    says(play, "atomic", "whole again")
    assert in_place(play) == {}


def test_in_the_next_generation_a_save_without_a_report_was_atomic() -> None:
    play = running(2)
    says(play, "not atomic", OVER, warning=True)
    play.say(play["worker-0"], Saved(play.generation, "/data/last.pt", 3))
    assert in_place(play) == {"worker-0": OVER}, "the report was about this save"
    play.crash("worker-0")
    play.until_next(2)
    assert in_place(play) == {"worker-0": OVER}, "nothing was saved since"
    play.say(play["worker-0"], Saved(play.generation, "/data/last.pt", 5))
    assert in_place(play) == {}


def test_the_next_master_hears_of_saves_in_place_again() -> None:
    play = running(2)
    says(play, "not atomic", OVER, warning=True)
    after = successor(play)
    after.run(3)
    says(after, "not atomic", OVER, warning=True)
    assert in_place(after) == {"worker-0": OVER}
