"""What the master remembers about saves, and sends with the next Start."""

from __future__ import annotations

from outrider.master.core.events import RestartRequested
from outrider.wire.ids import Generation
from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.generation import Start, Stop
from tests.unit.master.core.play import Play, running


def say(play: Play, step: int, *prints: str, is_first: bool = False, path: str = "/data/a.pt") -> None:
    actor = play["worker-0"]
    play.say(actor, Saved(actor.running, path, step, prints=prints, is_first=is_first))


def next_start(play: Play) -> Start:
    play.crash("worker-1")
    play.run(5)
    start = play["worker-0"].start
    assert start is not None
    return start


def test_fingerprints_are_handed_out_but_for_those_that_saves_of_two_steps_share() -> None:
    play = running(2)
    say(play, 10, "9-ten", "5-same")
    say(play, 20, "9-twenty", "5-same")
    say(play, 20, "9-twenty")
    start = next_start(play)
    assert start.prints == (("9-ten", 10), ("9-twenty", 20))
    assert start.saves == (("/data/a.pt", 20),)


def test_a_save_that_is_not_known_to_be_a_checkpoint_is_stored_by_its_bytes_alone() -> None:
    play = running(2)
    say(play, 10, "9-ten", is_first=True)
    assert not play.announced("CheckpointSaved")
    start = next_start(play)
    assert (start.saves, start.prints) == ((), (("9-ten", 10),))


def test_the_oldest_are_forgotten() -> None:
    play = running(2)
    for step in range(1, 400):
        say(play, step, f"9-{step}")
    assert len(play.prints()) == 256
    assert next_start(play).prints[-1] == ("9-399", 399)
    assert len(next_start(play).prints) == 32


def test_a_save_that_is_reported_again_only_adds_its_step() -> None:
    play = running(2)
    play.until(lambda: play.highest_step > 0, 10)
    play.tell(RestartRequested(at_checkpoint=True))
    before = len(play.announced("CheckpointSaved"))
    actor = play["worker-0"]
    for step in (20, 10):
        play.say(actor, Saved(Generation(0, 1), "/data/a.pt", step, prints=(f"9-{step}",), again=True))
    assert len(play.announced("CheckpointSaved")) == before
    assert not play.sent(Stop), "it is no finished checkpoint"
    start = next_start(play)
    assert ("/data/a.pt", 20) in start.saves
    assert dict(start.prints) == {"9-20": 20, "9-10": 10}


def test_of_many_paths_the_newest_are_remembered_and_the_newest_of_these_handed_out() -> None:
    play = running(2)
    for step in range(1, 101):
        say(play, step, path=f"/data/{step}.pt")
    say(play, 101, path="/data/40.pt")
    assert list(play.saved_steps().values()) == [*(step for step in range(37, 101) if step != 40), 101]
    start = next_start(play)
    assert len(start.saves) == 16
    assert start.saves[-2:] == (("/data/100.pt", 100), ("/data/40.pt", 101))
