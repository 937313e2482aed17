"""The picture of a job: its data comes from the job's folder, no texts overlap, and errors say why nothing is drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from outrider.cli.errors import UserError
from outrider.cli.plotting.picture import NUMBERED, figure_of, spread
from outrider.cli.plotting.timeline import Span, Timeline, rates, smoothed, timeline, timeline_of
from outrider.runtime.series import Series
from tests.tiers import witnesses

PNG = b"\x89PNG"
BEGAN = 1_795_640_000.0
REASON = (
    "worker-{} is lost: sidecar and trainer ended at the same time (exit code 137), which is $5 \\frac{{ of what "
    "a pair of members with long names can say\nabout it, on node gke-training-pool-7f3a-very-long-name.internal"
)


def stamp(at: float) -> str:
    return datetime.fromtimestamp(BEGAN + at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fault(at: float, lost: float | None = 0.4, reason: str = REASON) -> dict[str, Any]:
    named = reason.format(int(at) % 7)
    return {"time": stamp(at), "kind": "MemberLost", "member": "worker-1", "reason": named, "seconds_lost": lost}


def started(at: float, generation: str, members: int = 4) -> tuple[float, dict[str, Any]]:
    detail = {"group_world_size": str(members), "world_size": str(members)}
    return BEGAN + at, {"kind": "GenerationStarted", "generation": generation, "detail": detail}


def told(at: float, kind: str) -> tuple[float, dict[str, Any]]:
    return BEGAN + at, {"kind": kind, "generation": "", "detail": {}}


def job(
    length: float, faults: Sequence[float], loss: bool = True, steps: bool = True, lost: float | None = 0.4
) -> Timeline:
    """Trains at 20 steps a second from its fifth second on; each fault begins a generation 0.3 s later."""
    status = {"job": "digits", "phase": "succeeded", "step": max(0, 20 * int(length - 5)) if steps else 0,
              "faults": [fault(at, lost) for at in faults]}  # fmt: skip
    events = [told(0, "JobStarted"), started(4, "1.1")]
    events += [started(at + 0.3, f"1.{i}", 2 + i % 3) for i, at in enumerate(faults, 2)]
    events += [told(length, "JobSucceeded")]
    every = max(1.0, length / 2000)
    times = [every * i for i in range(1, int(length / every))]
    progress = [
        {"time": BEGAN + at, "generation": "1.1", "members": 4 if at > 4 else 0, "step": max(0, int(20 * (at - 5))),
         "stepped_at": BEGAN + at if at > 5 else None}
        for at in times
    ]  # fmt: skip
    losses = [(BEGAN + at, 3.0 / at) for at in times if at > 5]
    return timeline(status, sorted(events, key=lambda each: each[0]), progress if steps else [], losses * loss, None)


CASES: dict[str, Callable[[], Timeline]] = {
    "no fault": lambda: job(60, []),
    "one fault": lambda: job(60, [30]),
    "at the very begin and end": lambda: job(60, [0, 59.99]),
    "15 faults close together": lambda: job(600, [300 + i / 10 for i in range(15)]),
    "30 faults": lambda: job(3600, [100 * i for i in range(1, 31)]),
    "30 faults close to the end": lambda: job(86400 * 5, [86400 * 5 - 30 + i for i in range(30)]),
    "200 faults, none over": lambda: job(86400, [400 * i for i in range(1, 201)], lost=None),
    "no step": lambda: job(60, [20, 40], steps=False, loss=False, lost=None),
    "a loss and no step": lambda: job(60, [20], steps=False),
    "steps and no loss": lambda: job(60, [20], loss=False),
    "a second": lambda: job(1, []),
}
TELLING = ("at the very begin and end", "15 faults close together", "30 faults close to the end", "no step", "a second")


@pytest.mark.parametrize("case", witnesses(CASES, *TELLING))
def test_no_text_touches_another_one_or_the_frame(case: str) -> None:
    figure = figure_of(CASES[case]())
    boxes = {text: text.get_window_extent() for text in drawn_texts(figure)}
    frame = figure.bbox
    assert [t for t, box in boxes.items() if min(box.x0, box.y0) < 0 or box.x1 > frame.x1 or box.y1 > frame.y1] == []
    touching = [(a.get_text(), b.get_text()) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]
    assert touching == []


def drawn_texts(figure: Figure) -> list[Text]:
    """Texts including those of ticks, without the ones beyond the ends of an axis, which matplotlib does not draw."""
    figure.canvas.draw()
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            texts += [tick.label1 for tick in ticks if tick.label1.get_visible()]
    return [text for text in texts if text.get_text()]


@pytest.mark.parametrize("case", witnesses(CASES, *TELLING))
def test_every_fault_has_its_number_and_its_reason(case: str) -> None:
    of = CASES[case]()
    texts = [text.get_text() for text in figure_of(of).texts]
    many = min(len(of.faults), NUMBERED)
    assert sum(text == str(number) for number in range(1, many + 1) for text in texts) == 2 * many
    assert sum(" lost:  worker-" in text or "no step since:  worker-" in text for text in texts) == many
    left = [text for text in texts if text.startswith("and ")]
    assert left == ([f"and {len(of.faults) - many} more faults"] if len(of.faults) > many else [])


def test_panels_without_data_are_left_out() -> None:
    def panels(case: str) -> set[str]:
        return {text.get_text() for text in figure_of(CASES[case]()).texts} & {"loss", "new steps/s", "members"}

    assert panels("no fault") == {"loss", "new steps/s", "members"}
    assert panels("no step") == {"members"}
    assert panels("a loss and no step") == {"loss", "members"}
    assert panels("steps and no loss") == {"new steps/s", "members"}


def test_numbers_are_moved_apart_as_little_as_possible() -> None:
    assert spread([1, 5, 9], 1, 0, 10) == [1, 5, 9]
    assert spread([5, 5], 1, 0, 10) == [4.5, 5.5]
    assert spread([0, 0, 0], 1, 0, 10) == [0, 1, 2]
    assert spread([10, 10], 1, 0, 10) == [9, 10]
    assert spread([], 1, 0, 10) == []


# -- what is read -----------------------------------------------------------------------------------------------------
def test_a_generation_ends_with_its_fault_or_with_the_next_generation() -> None:
    status = {"job": "digits", "phase": "running", "step": 5, "faults": [fault(20), fault(31)]}
    events = [told(0, "JobStarted"), started(4, "1.1"), started(25, "1.2", 3), started(40, "1.3")]
    ran = {"generation": "1.2", "members": 3, "step": 5, "stepped_at": BEGAN + 6}
    of = timeline(status, events, [{"time": BEGAN + 35, **ran}], [], BEGAN + 50)
    assert of.spans == [  # the fault at 31 s was a spare's: 1.2 ran on
        Span(4.0, pytest.approx(20.0), 4, "1.1"), Span(25.0, 40.0, 3, "1.2"), Span(40.0, 50.0, 4, "1.3")
    ]  # fmt: skip


def test_steps_per_second_do_not_count_repeated_steps() -> None:
    steps: list[tuple[int, float]] = [(0, 5), (20, 6), (40, 7), (40, 8), (40, 9), (40, 10), (60, 11)]
    progress = [
        {"time": BEGAN + at, "generation": "1.1", "members": 4, "step": step,
         "stepped_at": BEGAN + min(at, 7 if step == 40 else at)}
        for step, at in steps
    ]  # fmt: skip
    status = {"job": "digits", "phase": "running", "step": 60, "faults": []}
    of = timeline(status, [told(0, "JobStarted")], progress, [], BEGAN + 11)
    assert [round(rate) for _, _, rate in rates(of.steps)] == [20, 20, 0, 0, 0, 20]
    assert rates(of.steps[:1]) == []


def test_members_of_a_ps_job_have_separate_generations() -> None:
    status = {"job": "click", "phase": "running", "step": 0, "faults": [], "seats": [{"role": "ps"}]}
    counts = [0, 2, 4, 4, 3, 4]
    progress = [
        {"time": BEGAN + at, "generation": "-", "members": count, "step": 0, "stepped_at": None}
        for at, count in enumerate(counts)
    ]
    of = timeline(status, [], progress, [], BEGAN + 10)
    assert of.spans == [Span(1.0, 2.0, 2), Span(2.0, 4.0, 4), Span(4.0, 5.0, 3), Span(5.0, 10.0, 4)]


# -- the command ------------------------------------------------------------------------------------------------------
@pytest.fixture
def trained(ended_job: Any) -> Path:
    """A job's folder as it is after a training with one fault."""
    folder: Path = ended_job(phase="succeeded", faults=[fault(6.0)])
    kinds = [(0.0, "JobStarted", {}), (1.0, "GenerationStarted", {"group_world_size": "2"}),
             (6.2, "GenerationStarted", {"group_world_size": "2"}), (12.0, "JobSucceeded", {})]  # fmt: skip
    lines = [
        {
            "seq": seq,
            "time": stamp(at),
            "kind": kind,
            "generation": f"1.{1 + (at > 6)}",
            "reason": ".",
            "detail": detail,
        }
        for seq, (at, kind, detail) in enumerate(kinds, 1)
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    series = Series(folder / "progress.jsonl")
    for at in range(2, 12):
        series.add(BEGAN + at, generation="1.1", members=2, step=10 * at, stepped_at=BEGAN + at - 0.1)
    series.close()
    with (folder / "progress.jsonl").open("a") as file:
        file.write('{"time": "noon"}\n[]\n{"time": 3, "step": nul')
    return folder


def test_one_rank_s_losses_make_the_curve(trained: Path) -> None:
    series = Series(trained / "loss.jsonl")
    for at, loss, by in ((2.0, 9.0, 1), (2.1, 3.0, 0), (3.0, 2.5, 0), (4.0, 2.0, 0)):
        series.add(BEGAN + at, loss=loss, by=by)
    series.close()
    assert [(round(at, 1), loss) for at, loss in timeline_of("digits").losses] == [(2.1, 3.0), (3.0, 2.5), (4.0, 2.0)]


def test_a_job_that_is_over_is_drawn(trained: Path, outrider: Any, tmp_path: Path) -> None:
    done = outrider("plot", "digits", "-o", str(tmp_path / "digits.png"))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "digits.png")]
    assert (tmp_path / "digits.png").read_bytes().startswith(PNG)


def test_the_only_running_job_is_drawn_by_default(
    running_job: Any, outrider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = running_job().folder
    series = Series(folder / "progress.jsonl")
    series.add(BEGAN, generation="1.1", members=2, step=0, stepped_at=None)
    series.close()
    monkeypatch.chdir(tmp_path)
    done = outrider("plot")
    assert done.exit_code == 0, done.stderr
    assert "digits has no recorded steps; only its members and faults are drawn" in done.stderr
    assert (tmp_path / "digits.png").read_bytes().startswith(PNG)


def test_the_error_says_why_nothing_is_drawn(trained: Path, ended_job: Any, outrider: Any, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        done = outrider("plot", *arguments)
        assert done.exit_code == 2
        return " ".join(done.stderr.split())

    assert "job 'other' not found" in refusal("other")
    missing, text = tmp_path / "none" / "digits.png", tmp_path / "digits.docx"
    assert f"{missing} cannot be written: " in refusal("digits", "-o", str(missing))
    assert f"{text} cannot be written: Format 'docx' is not supported" in refusal("digits", "-o", str(text))
    ended_job("young", faults=[])
    assert "young has no records yet" in refusal("young")
    assert "it was started without --scaling" in refusal("digits", "--scaling")
    assert "JOB: must be given with --cluster" in refusal("--cluster")


def test_without_matplotlib_it_says_what_to_install(trained: Path) -> None:
    program = "import sys; sys.modules['matplotlib'] = None; from outrider.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "plot", "digits"], capture_output=True, text=True, timeout=60, cwd=trained
    )
    assert done.returncode == 2
    assert done.stderr == "outrider: matplotlib is not installed: pip install matplotlib\n"


def test_a_job_without_a_generation_cannot_be_drawn() -> None:
    status = {"job": "digits", "phase": "pending", "step": 0, "faults": []}
    with pytest.raises(UserError, match="digits has not started a generation yet"):
        timeline(status, [told(0, "JobStarted")], [], [], BEGAN + 1)


def test_a_mean_is_of_losses_on_both_sides() -> None:
    losses = [(float(i), float(i % 2)) for i in range(100)]
    assert [at for at, _ in smoothed(losses)] == [at for at, _ in losses]
    assert all(0.4 < mean < 0.6 for _, mean in smoothed(losses))
    assert smoothed(losses[:5]) == losses[:5]
