"""Training metrics from log lines: shown in the status, and used to measure the job if no steps are seen."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count, pairwise

import pytest

from outrider.master.core.events import SpecChanged
from outrider.master.core.history import document
from outrider.master.core.k8s.elasticjob.metrics import IMAGENET
from outrider.wire.messages.generation import Start
from outrider.wire.messages.log_lines import Group, LineMatched, PatternDropped
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, running

LINE = (
    "Epoch: [17][  50/1563]\tTime  0.258 ( 0.385)\tData  0.155 ( 0.170)\t"
    "Loss 2.5284e+00 (2.5905e+00)\tAcc@1  42.19 ( 39.71)\tAcc@5  64.06 ( 65.81)"
)
PATTERN = r"step (?P<step>\S+)|took (?P<latency>\S+)|loss (?P<loss>\S+)"
SERIALS = count(1)


def writes(play: Play, member: str = "worker-0", pattern: str = PATTERN, rank: int = 0, **groups: str) -> None:
    actor = play[member]
    found = tuple(Group(name, text) for name, text in groups.items())
    play.say(actor, LineMatched(actor.highest, rank, pattern, "a line", next(SERIALS), groups=found))


def samples(play: Play, members: int) -> float:
    """Samples per second in a generation of so many members."""
    return next(row["samples_per_second"] for row in play.scaling()["sizes"] if row["members"] == members)


def metrics_status(play: Play) -> dict[str, object]:
    play.run(11)
    assert play.saved is not None
    found = play.saved["metrics"]
    assert isinstance(found, dict)
    return found


def unseen(most: int = 4, **settings: object) -> Play:
    """A job with autoscaling whose steps the hooks do not see."""
    spec = replace(job(most, 1), replicas=1, scaling="throughput", scale_cooldown=0.0, grow_patience=2.0,
                   hang_detection=False, metrics_pattern=PATTERN)  # fmt: skip
    play = Play(replace(spec, **settings))  # type: ignore[arg-type]
    _without_pages(play)
    play.until_running(1)
    return play


def _without_pages(play: Play) -> None:
    for actor in play.actors.values():
        actor.has_pages = False


def test_the_default_reads_the_lines_of_the_imagenet_example() -> None:
    found = re.search(IMAGENET, LINE)
    assert found is not None
    assert found.groupdict() == {
        "epoch": "17", "step": "50", "latency": "0.258", "loss": "2.5284e+00", "accuracy": "42.19"
    }  # fmt: skip


def test_only_the_member_with_rank_0_receives_the_pattern() -> None:
    play = Play(job(2, metrics_pattern=PATTERN))
    play.until_running(2)
    assert {send.member: send.message.patterns for send in play.sent(Start)} == {  # type: ignore[union-attr]
        "worker-0": (PATTERN,),
        "worker-1": (),
    }


def test_the_newest_numbers_are_shown_and_those_of_other_lines_stay() -> None:
    play = running(1, metrics_pattern=PATTERN)
    writes(play, loss="2.5")
    writes(play, step="100")
    writes(play, loss="2.25")
    writes(play, rank=1, loss="9")
    found = metrics_status(play)
    assert (found["loss"], found["step"], found["line"], found["problem"]) == (2.25, 100.0, "a line", "")
    assert str(found["time"]).endswith("Z")


@pytest.mark.parametrize(
    ("groups", "named"),
    [({"loss": "nan"}, 'loss is "nan"'), ({"latency": "0"}, 'latency is "0"'), ({"latency": "-1"}, 'latency is "-1"'),
     ({"step": "soon"}, 'step is "soon"'), ({"rate": "0"}, 'rate is "0"'), ({"latency_ms": "1e400"}, 'is "1e400"')],
)  # fmt: skip
def test_an_invalid_number_is_ignored_and_reported_once(groups: dict[str, str], named: str) -> None:
    play = running(1, metrics_pattern=PATTERN)
    for _ in range(3):
        writes(play, **groups)
    found = metrics_status(play)
    assert named in str(found["problem"])
    assert not set(groups) & set(found)
    assert len(play.announced("MetricsInvalid")) == 1
    writes(play, **dict.fromkeys(groups, "1"))
    assert metrics_status(play)["problem"] == ""
    writes(play, **groups)
    assert named in str(metrics_status(play)["problem"])
    assert len(play.announced("MetricsInvalid")) == 1


def test_a_pattern_that_matches_nothing_is_reported_after_a_while() -> None:
    play = running(1, metrics_pattern=PATTERN)
    play.run(290)
    assert not play.announced("MetricsMissing")
    play.run(20)
    (event,) = play.announced("MetricsMissing")
    assert "No line of rank 0's output has matched" in event.reason
    assert metrics_status(play)["problem"] == event.reason
    writes(play, loss="1")
    assert metrics_status(play)["problem"] == ""


def test_a_pattern_that_is_too_slow_is_not_sent_to_later_generations() -> None:
    play = running(1, metrics_pattern=PATTERN)
    actor = play["worker-0"]
    play.say(actor, PatternDropped(actor.highest, PATTERN, "it took more than 50 ms of CPU for one line", "aaaa"))
    assert "is disabled until it is edited: on worker-0 it took more than 50 ms" in str(metrics_status(play)["problem"])
    play.crash("worker-0")
    play.until_next(1)
    assert play.sent(Start)[-1].message.patterns == ()  # type: ignore[union-attr]


def test_another_pattern_starts_again_with_the_next_generation() -> None:
    play = running(1, metrics_pattern=PATTERN)
    writes(play, loss="2.5")
    play.tell(SpecChanged(replace(play.spec, metrics_pattern="(?P<loss>x)")))
    assert "loss" not in metrics_status(play)
    play.crash("worker-0")
    play.until_next(1)
    assert play.sent(Start)[-1].message.patterns == ("(?P<loss>x)",)  # type: ignore[union-attr]


def test_the_next_master_knows_them() -> None:
    play = running(1, metrics_pattern=PATTERN)
    writes(play, loss="2.5")
    metrics_status(play)
    later = successor(play)
    later.run(12)
    assert later.saved is not None
    assert later.saved["metrics"]["loss"] == 2.5  # type: ignore[index]


# -- measuring ------------------------------------------------------------------------------------------------------
def logs(play: Play, seconds: float, latency: str = "", until: int = 0, group: str = "latency") -> None:
    """Has rank 0 write a line every so many seconds: the number of steps, ten a line, or the time of one step."""
    for number in range(1, 200):
        if len(play.world) == until or play.has_settled():
            return
        _without_pages(play)
        play.run(seconds)
        first = play.world[0] if play.world else ""
        if first and play.stage == "running" and play[first].running == play.generation:
            writes(play, first, **({group: latency} if latency else {"step": str(10 * number)}))
    pytest.fail("it has decided nothing")


@pytest.mark.parametrize(("seconds", "latency"), [(2.0, ""), (120.0, ""), (2.0, "0.002"), (15.0, "10.4")])
def test_a_job_without_steps_that_are_seen_grows_by_its_log(seconds: float, latency: str) -> None:
    play = unseen()
    logs(play, seconds, latency, until=4)
    assert len(play.world) == 4, "steps take as long in a larger world: linear growth"


@pytest.mark.parametrize(("group", "text"), [("latency_ms", "250"), ("rate", "4.0")])
def test_milliseconds_and_steps_a_second_say_the_same_as_a_latency(group: str, text: str) -> None:
    play = unseen()
    logs(play, 2.0, text, until=4, group=group)
    assert (metrics_status(play)["latency"], metrics_status(play)[group]) == (0.25, float(text))
    assert samples(play, 1) == pytest.approx(4.0)


def test_a_job_without_measurements_reports_it_and_keeps_its_size() -> None:
    play = unseen()
    for _ in range(30):
        _without_pages(play)
        play.run(20)
        writes(play, latency="nan")
    assert len(play.world) == 1
    (event,) = play.announced("ScalingMetricMissing")
    assert play.scaling()["message"] == event.reason


def test_if_steps_are_seen_lines_measure_nothing() -> None:
    spec = replace(job(4, 1), replicas=1, scaling="throughput", scale_cooldown=1e6, metrics_pattern=PATTERN)
    play = Play(spec)
    play.until_running(1)
    for _ in range(30):
        play.run(2)
        writes(play, latency="100")
    assert samples(play, 1) == pytest.approx(10, rel=0.1), "steps take 0.1 s"


# -- how much a sample teaches ----------------------------------------------------------------------------------------
def weighed(noise: str, **settings: object) -> Play:
    """Growth is linear; a member's part of a step has 32 samples."""
    pattern = r"noise (?P<noise>\S+)"
    spec = replace(job(8, 1), replicas=1, scaling="efficiency", min_gain=0.45, scale_cooldown=0.0, grow_patience=2.0,
                   metrics_pattern=pattern, **settings)  # type: ignore[arg-type]  # fmt: skip
    play = Play(spec)
    play.batch, play.pace = 32, lambda world: 0.37
    play.until_running(1)
    for _ in range(3 if noise else 0):
        writes(play, pattern=pattern, noise=noise)
    play.until(lambda: play.has_settled(), 600)
    return play


@pytest.mark.parametrize(("noise", "members"), [("64", 2), ("1e9", 8), ("", 8)])
def test_a_larger_batch_that_teaches_little_more_is_not_worth_its_members(noise: str, members: int) -> None:
    play = weighed(noise)
    assert play.wanted() == members
    text = "the gradient noise is 64 samples, a member's batch 32" if noise == "64" else "samples"
    assert text in play.scaling()["message"]


def test_without_the_noise_or_with_the_same_batch_throughput_alone_counts_and_the_reason_says_so() -> None:
    assert "The gradient noise is unknown, so throughput alone counts." in weighed("").scaling()["message"]
    play = weighed("64", keep_global_batch=True)
    assert play.wanted() == 8
    assert "The global batch is the same at any size" in play.scaling()["message"]


def test_the_next_master_knows_the_noise() -> None:
    play = weighed("64")
    later = successor(play)
    later.run(5)
    assert later.handed_over()["scaling"]["noise"] == [32.0, *[64.0] * 3], "the batch, and the reported noise"


def test_a_line_of_an_ended_generation_does_not_count_for_this_one() -> None:
    play = running(1, metrics_pattern=PATTERN)
    actor, old = play["worker-0"], play.generation
    play.crash("worker-0")
    play.until_next(1)
    play.say(actor, LineMatched(old, 0, PATTERN, "a line", next(SERIALS), groups=(Group("loss", "9"),)))
    assert "loss" not in metrics_status(play)


@pytest.mark.parametrize("is_edited", [False, True])
def test_the_next_master_knows_the_numbers_of_the_pattern_that_there_is(is_edited: bool) -> None:
    play = running(1, metrics_pattern=PATTERN)
    writes(play, loss="2.5")
    assert metrics_status(play)["loss"] == 2.5
    if is_edited:  # while no master was there
        play.spec = replace(play.spec, metrics_pattern="(?P<loss>x)")
    assert metrics_status(successor(play)).get("loss") == (None if is_edited else 2.5)


# -- over time ------------------------------------------------------------------------------------------------------
def points(play: Play, name: str) -> list[list[float]]:
    part = document.part(play.state, play.now)
    return next((curve["points"] for curve in part["numbers"] if curve["name"] == name), [])


def test_the_history_has_the_numbers_over_time_from_the_first_to_the_newest() -> None:
    play = running(2, metrics_pattern=PATTERN)
    for number in range(2000):
        play.run(1)
        writes(play, loss=str(2000 - number), step=str(number))
    play.run(1)
    found = points(play, "loss")
    assert 90 < len(found) < 210
    assert (found[0][1], found[-1][1]) == (2000.0, 1.0)
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(found[:-1])]
    assert max(gaps) < 2.1 * min(gaps), "evenly spaced"
    assert all(pytest.approx(2000 - value, abs=1.5) == at - found[0][0] for at, value in found)
    assert not points(play, "step")


def test_a_job_without_numbers_has_no_curves_in_its_history() -> None:
    play = running(2, metrics_pattern=PATTERN)
    writes(play, loss="nan")
    play.run(1)
    assert document.part(play.state, play.now)["numbers"] == []
