"""Scripts with a signal handler that saves: which signals are supported, which ranks get them, which save counts."""

from __future__ import annotations

import re

import pytest

from outrider.master.core.checkpoints import save_signal as checkpoints_save_signal
from outrider.master.core.events import ScaleRequested, StopAsked
from outrider.wire.ids import OrderId
from outrider.wire.messages.checkpoints import Saved, SaveState
from tests.unit.master.core.play import Play, job


def handling(members: int = 3, least: int | None = None, *, saves_in: float | None = 0.5) -> Play:
    """A running job whose rank 0 saves when it gets the signal."""
    play = Play(job(members, least, save_signal="SIGUSR1"))
    play.until_next(members)
    play["worker-0"].saves_in = saves_in
    play.until(lambda: play.highest_step > 0, 10.0)
    return play


def reasons(play: Play, kind: str) -> list[str]:
    return [each.reason for each in play.announced(kind)]


@pytest.mark.parametrize(("text", "name"), [("SIGUSR1", "SIGUSR1"), (" usr2 ", "SIGUSR2"), ("SigHup", "SIGHUP")])
def test_a_signal_may_be_written_as_kill_takes_it(text: str, name: str) -> None:
    assert checkpoints_save_signal.parsed(text) == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SIGKILL", 'Unsupported value: "SIGKILL" (no process can handle it): supported values: SIGUSR1, SIGUSR2, '),
        ("term", 'Unsupported value: "SIGTERM" (Outrider stops ranks with it): supported values: '),
        ("SIGSEGV", 'Unsupported value: "SIGSEGV" (it reports a crash of the process): '),
        ("10", 'Unsupported value: "10": supported values: SIGUSR1'),
        ("", 'Unsupported value: "": '),
    ],
)
def test_a_signal_that_cannot_be_handled_or_is_used_by_outrider_is_refused_with_the_reason(
    text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        checkpoints_save_signal.parsed(text)


def test_before_the_end_every_rank_is_asked_and_the_next_save_counts() -> None:
    play = handling()
    play.tell(StopAsked("by `outrider stop`"))
    requests = play.sent(SaveState)
    assert [each.member for each in requests] == ["worker-0", "worker-1", "worker-2"]
    assert {each.message.signal for each in requests} == {"SIGUSR1"}
    assert reasons(play, "SaveRequested") == [
        "Every rank receives SIGUSR1 to save the script's state, because the job is stopped: by `outrider stop`."
    ]
    assert play.until(lambda: play.is_over) < 1.0
    (saved,) = reasons(play, "StateSaved")
    assert saved.startswith("The script has saved /data/ckpt.pt at step ")
    assert saved.endswith(", as requested by SIGUSR1.")


def test_a_script_that_does_not_save_keeps_no_job_from_its_end() -> None:
    play = handling(saves_in=None)
    play.tell(StopAsked("by `outrider stop`"))
    play.until(lambda: play.is_over, play.spec.save_grace + 5)
    assert reasons(play, "StateNotSaved") == ["The state was not saved in time; the last checkpoint is used."]


def test_a_rank_without_a_handler_is_reported_and_the_job_does_not_wait() -> None:
    play = handling()
    play["worker-1"].handles_signal = False
    play.tell(StopAsked("by `outrider stop`"))
    play.until(lambda: play.is_over, 1.0)
    assert reasons(play, "StateNotSaved") == [
        "The state could not be saved: local rank 0 has no handler for SIGUSR1 (yet); the last checkpoint is used."
    ]


def test_a_generation_that_has_made_no_step_has_nothing_to_save() -> None:
    play = Play(job(3, save_signal="SIGUSR1"))
    play.until(lambda: play.stage == "running", 10.0)
    assert play.highest_step == 0
    play.tell(StopAsked("by `outrider stop`"))
    assert play.is_over
    assert not play.sent(SaveState)


def test_a_script_that_has_registered_its_state_is_asked_for_that() -> None:
    play = handling()
    play.offer("worker-0")
    play.tell(StopAsked("by `outrider stop`"))
    (request,) = play.sent(SaveState)
    assert (request.member, request.message.signal) == ("worker-0", "")


def test_another_size_does_not_wait_for_the_scripts_own_checkpoint() -> None:
    play = handling(3, 2)
    play.tell(ScaleRequested(2))
    assert play.until_next(2) < 2.0


def test_growth_that_was_requested_before_the_first_step_asks_after_it() -> None:
    play = handling(4, 2)
    play.lose("worker-3")
    play.until_next(3)
    play["worker-0"].saves_in = 0.5
    assert play.until_next(4) < 8.0
    assert len(play.sent(SaveState)) == 3, "each rank of the world, once"


def test_a_save_that_was_not_requested_is_a_checkpoint_like_any_other() -> None:
    play = handling()
    play.say(play["worker-0"], Saved(play.generation, "/data/ckpt.pt", 12))
    assert not reasons(play, "StateSaved")


def test_a_save_that_began_before_the_signal_does_not_count_whenever_it_ends() -> None:
    play = handling(saves_in=None)
    play.tell(StopAsked("by `outrider stop`"))
    order = play.sent(SaveState)[0].message.order
    play.run(0.1)
    play.say(play["worker-0"], Saved(play.generation, "/data/ckpt.pt", 12))
    play.say(play["worker-0"], Saved(play.generation, "/data/ckpt.pt", 12, OrderId(order - 1)))
    assert not reasons(play, "StateSaved")
    assert not play.is_over
    play.say(play["worker-0"], Saved(play.generation, "/data/ckpt.pt", 13, order))
    assert play.is_over


def test_an_earlier_save_does_not_count_even_if_no_other_ends_in_time() -> None:
    play = handling(saves_in=None)
    play.tell(StopAsked("its ElasticJob was deleted", within=20.0))
    play.run(0.1)
    play.say(play["worker-0"], Saved(play.generation, "/data/ckpt.pt", 12))
    play.until(lambda: play.is_over, 20.0)
    assert reasons(play, "StateNotSaved") == ["The state was not saved in time; the last checkpoint is used."]
