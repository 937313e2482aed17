"""What a generation resumes from: Recovered, StartedOver or ResumeUnknown, and how many steps are repeated."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.events import SpecChanged
from outrider.master.core.generation.resume import PATIENCE
from outrider.wire.messages.checkpoints import Saved
from outrider.wire.messages.generation import Stepped
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.master.core.play import Play, running


def saved(members: int = 2) -> Play:
    """A job whose worker-0 has saved a checkpoint, and whose last rank was killed then."""
    play = running(members)
    play.save("worker-0")
    play.run(2)
    play.steps_beyond = False
    for actor in play.actors.values():
        actor.has_pages = False  # its reports are written here
    play.crash(f"worker-{members - 1}")
    play.until(lambda: play.is_running() and play.generation.number == 2, 10)
    assert not play.announced("Recovered")
    return play


def report(
    play: Play, member: str, *ranks: tuple[int, int], opened: bool = False, phase: str = "step", age: float = 0.0
) -> None:
    """`ranks`: (step, the step of the checkpoint that it has loaded)."""
    rows = tuple(
        RankProgress(number, step, age, phase, base=base, opened=opened) for number, (step, base) in enumerate(ranks)
    )
    play.say(play[member], Report(play.generation, "running", max(step for step, _ in ranks), ranks=rows))


def beyond(play: Play, member: str = "worker-0", base: int = 0) -> None:
    play.say(play[member], Stepped(play.generation, play.highest_step + 1, 0.0, base))


def test_a_script_that_starts_at_0_despite_its_checkpoint_has_started_over() -> None:
    play = saved()
    high = play.highest_step
    report(play, "worker-0", (3, 0))
    assert not play.announced("StartedOver"), "worker-1 may have loaded it for both"
    report(play, "worker-1", (0, 0), phase="init")
    assert not play.announced("StartedOver")
    report(play, "worker-1", (4, 0))
    (reported,) = play.announced("StartedOver")
    made = next(iter(play.saved_steps().values()))
    assert reported.reason == (
        f"The script started at step 0 again and did not load ckpt.pt, which it had saved at step {made}: {high} steps "
        "are repeated, as after every fault. The script may need a flag to load it, such as --resume or "
        "--init_from=resume."
    )
    assert reported.severity == "warning"
    assert play.status()["resumed_from"] == "started over"
    assert play.status()["steps_repeated"] == 4
    beyond(play)
    (reported,) = play.announced("CaughtUp")
    assert f"{high} steps were repeated and" in reported.reason
    assert not play.announced("Recovered")
    assert play.status()["steps_repeated"] == high
    assert play.status()["faults"][0]["seconds_lost"] is not None


def test_a_load_on_one_rank_counts_for_all() -> None:
    play = saved(3)
    made, high = next(iter(play.saved_steps().values())), play.highest_step
    report(play, "worker-2", (2, 0))
    report(play, "worker-1", (2, 0))
    report(play, "worker-0", (made + 2, made))
    beyond(play)
    assert play.announced("Recovered")
    assert not play.announced("StartedOver")
    assert play.status()["resumed_from"] == "loaded"
    assert play.status()["steps_repeated"] == high - made


def test_the_report_of_a_recovery_waits_for_the_rank_that_has_loaded() -> None:
    play = saved()
    beyond(play, base=0)
    assert not play.announced("Recovered")
    report(play, "worker-0", (90, 0))
    report(play, "worker-1", (90, 12))
    assert play.announced("Recovered")
    play = saved()
    beyond(play, base=12)
    assert play.announced("Recovered"), "the rank that reports so has loaded it itself"


def test_a_recovery_without_further_reports_is_reported_before_the_next_fault() -> None:
    play = saved()
    beyond(play, base=0)
    play.crash("worker-1")
    assert play.announced("Recovered")
    assert play.status()["faults"][0]["seconds_lost"] is not None


def test_a_checkpoint_that_was_opened_otherwise_may_have_been_read() -> None:
    play = saved()
    report(play, "worker-0", (3, 0), opened=True)
    report(play, "worker-1", (3, 0))
    assert play.announced("ResumeUnknown")
    assert not play.announced("StartedOver")
    assert play.status()["resumed_from"] == "unknown"
    assert play.status()["steps_repeated"] == 0


def test_if_it_is_unknown_the_lost_time_ends_with_the_first_step_of_all() -> None:
    play = saved()
    high, left = play.highest_step, play.position().stepped_at
    assert left is not None
    report(play, "worker-0", (1, 0), opened=True)
    play.run(3)
    report(play, "worker-1", (1, 0), age=0.5)
    (reported,) = play.announced("ResumeUnknown")
    lost = play.now - 0.5 - left
    assert reported.reason.endswith(
        f"It is unknown from which step generation {play.generation} continues and how many steps it repeats; its "
        f"steps are counted from {high} on. {lost:.2f} s were lost until its first step, plus the time of repeated "
        "steps."
    )
    assert dict(reported.detail) == {"counted_from": str(high), "seconds_lost": f"{lost:.3f}"}
    assert play.status()["faults"][0]["seconds_lost"] == round(lost, 3)
    report(play, "worker-0", (high + 5, 0))
    play.say(play["worker-0"], Stepped(play.generation, high + 5, 0.0, 0))
    assert not play.announced("Recovered")
    play.run(11)
    assert play.handed_over()["seconds_lost"] == round(lost, 3), "once"


def test_if_it_is_unknown_steps_are_counted_on_from_the_highest() -> None:
    play = saved()
    high = play.highest_step
    assert not play.status()["step_estimated"]
    report(play, "worker-0", (3, 0), opened=True)
    assert play.status()["step"] == high
    report(play, "worker-1", (4, 0))
    status = play.status()
    assert (status["step"], status["step_estimated"]) == (high + 4, True)
    report(play, "worker-0", (6, 0))
    status = play.status()
    assert (status["step"], status["steps_repeated"]) == (high + 6, 0)
    assert [each["step"] for each in status["members"]] == [high + 6, high + 4]
    play.crash("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 3, 10)
    high = play.highest_step
    for member in ("worker-0", "worker-1"):
        report(play, member, (2, 0), opened=True)
    assert play.status()["step"] == high + 2


def test_a_save_there_has_the_step_that_is_counted_on() -> None:
    """A rank that loads it in the next generation counts on from there."""
    play = saved()
    high = play.highest_step
    for member in ("worker-0", "worker-1"):
        report(play, member, (3, 0), opened=True)
    play.say(play["worker-0"], Saved(play.generation, "/data/next.pt", 3, prints=("9-y",)))
    assert (play.saved_steps()["/data/next.pt"], play.prints()["9-y"]) == (high + 3, high + 3)
    assert play.announced("CheckpointSaved")[-1].reason.endswith(f"next.pt at step {high + 3}.")


def test_a_new_master_counts_on_too() -> None:
    from tests.unit.master.core.membership.test_masters import successor

    play = saved()
    high = play.highest_step
    for member in ("worker-0", "worker-1"):
        report(play, member, (3, 0), opened=True)
    play.run(2)
    after = successor(play)
    after.run(3)
    report(after, "worker-0", (7, 0))
    status = after.status()
    assert (status["step"], status["step_estimated"], status["resumed_from"]) == (high + 7, True, "unknown")


def test_a_repeated_error_is_recognized_even_if_the_step_of_resumption_is_unknown() -> None:
    play = saved()
    for _ in range(play.spec.crash_loop):
        play.actions.clear()
        for member in ("worker-0", "worker-1"):
            report(play, member, (3, 0), opened=True)
        assert play.announced("ResumeUnknown")
        assert play.ended() is None
        play.crash("worker-0", code=1, error="ValueError", step=3)
        play.run(2)
    assert play.ended() is not None


def test_nothing_is_reported_without_a_save_or_with_a_sidecar_of_an_older_release() -> None:
    play = running(2)
    play.run(2)
    play.crash("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 2, 10)
    play.run(5)
    assert play.announced("Recovered")
    assert not play.announced("StartedOver")
    play = saved()
    report(play, "worker-0", (3, -1))
    report(play, "worker-1", (3, -1))
    beyond(play, base=-1)
    assert play.announced("Recovered")
    assert not play.announced("StartedOver")


def test_a_first_save_alone_does_not_count_as_a_checkpoint() -> None:
    play = running(2)
    actor = play["worker-0"]
    play.say(actor, Saved(actor.running, "/data/model.pt", 20, prints=("9-x",), is_first=True))
    play.run(2)
    play.crash("worker-1")
    play.run(5)
    assert play.announced("Recovered")
    assert play.status()["resumed_from"] == "nothing saved"


def test_repeated_steps_outlive_generations_and_the_master() -> None:
    from tests.unit.master.core.membership.test_masters import successor

    play = saved()
    for member in ("worker-0", "worker-1"):
        report(play, member, (7, 0))
    play.crash("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 3, 10)
    for member in ("worker-0", "worker-1"):
        report(play, member, (5, 0))
    assert play.status()["steps_repeated"] == 12
    play.run(2)
    after = successor(play)
    after.run(3)
    assert after.status()["steps_repeated"] == 12


def test_a_job_that_must_resume_ends_if_its_script_starts_over() -> None:
    play = saved()
    play.tell(SpecChanged(replace(play.spec, require_resume=True)))
    report(play, "worker-0", (3, 0))
    report(play, "worker-1", (4, 0))
    (told,) = play.announced("JobFailed")
    assert ": the job fails, because it must resume (--require-resume, requireResume). The script " in told.reason
    assert play.announced("StartedOver")
    play = saved()
    play.tell(SpecChanged(replace(play.spec, require_resume=True)))
    report(play, "worker-0", (13, 12))
    report(play, "worker-1", (4, 0))
    assert not play.announced("JobFailed")


def test_a_member_without_a_seen_step_does_not_delay_the_verdict() -> None:
    play = saved()
    report(play, "worker-0", (3, 0))
    beyond(play, base=0)
    play.run(PATIENCE - 1)
    report(play, "worker-0", (9, 0))
    assert not play.announced("ResumeUnknown")
    play.run(2)
    report(play, "worker-0", (10, 0))
    assert play.announced("ResumeUnknown")
    assert not play.announced("Recovered")
    assert play.status()["faults"][0]["seconds_lost"] is not None


def unsaved() -> Play:
    """A job like `saved`, but without any seen save."""
    play = running(2)
    play.run(2)
    play.steps_beyond = False
    for actor in play.actors.values():
        actor.has_pages = False
    play.crash("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 2, 10)
    return play


def test_without_a_save_a_read_of_what_was_written_in_training_may_be_a_load() -> None:
    play = unsaved()
    high = play.highest_step
    report(play, "worker-0", (3, 0), opened=True)
    report(play, "worker-1", (3, 0))
    (reported,) = play.announced("ResumeUnknown")
    assert reported.reason.startswith(
        "No save was seen, but the script has read a file that was written during training, which may be a "
        f"checkpoint. It is unknown from which step generation {play.generation} continues and how many steps it "
        f"repeats; its steps are counted from {high} on. "
    )
    assert play.status()["step"] == high + 3
    assert play.status()["resumed_from"] == "unknown"
    assert play.status()["steps_repeated"] == 0
    assert not play.announced("StartedOver")


def test_without_a_save_and_such_a_read_all_steps_are_repeated_without_a_warning() -> None:
    play = unsaved()
    high = play.highest_step
    report(play, "worker-0", (3, 0))
    report(play, "worker-1", (3, 0))
    assert play.status()["resumed_from"] == "nothing saved"
    beyond(play)
    assert play.announced("Recovered")
    assert play.status()["steps_repeated"] == high
    assert not play.announced("ResumeUnknown")
    assert not play.announced("StartedOver")
