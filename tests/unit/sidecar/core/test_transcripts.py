"""Golden transcripts: whole stories, pinned to the letter. `pytest --rewrite` writes them again, to be read in
review."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from outrider.sidecar.core.events import (
    HookDisconnected,
    LifelineLost,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    NeighbourProbed,
    PagesRead,
    PortFound,
    TerminationAsked,
    TrainerEnded,
    UsageSampled,
    WorkerExited,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import Finish, Welcome
from outrider.wire.messages.report import RankProgress
from tests.unit.sidecar.core.play import (
    BEGAN,
    FIRST,
    RESTARTED,
    SECOND,
    Play,
    ended_well,
    killed,
    start,
    stop,
    template,
)
from tests.unit.transcript import Telling

NEIGHBOURS = tuple(Neighbour(MemberId(f"worker-{each}"), f"10.0.0.{each + 1}", 9000) for each in (1, 2))
FOLDER = Path(__file__).parent / "transcripts"


def a_crash_and_the_next_generation(play: Play) -> None:
    """A worker process is killed: that is reported at once, what is left is stopped, and the next generation starts on
    another port; its first new step ends the lost time."""
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)), WorkerExited(FIRST, killed(1, 102)))
    play.tell(stop(2, FIRST), WorkersStopped(FIRST, 1), PortFound(2001), UsageSampled(0.5, 300.0))
    play.tell(start(3, SECOND, high_step=7), WorkersStarted(SECOND, (201, 202)))
    play.tell(PagesRead(SECOND, (RankProgress(0, 8, 0.01, "step"), RankProgress(1, 7, 0.3, "step"))))
    play.tell(PagesRead(SECOND, (RankProgress(0, 8, 0.02, "step"), RankProgress(1, 8, 0.01, "step"))))


def a_sidecar_reattaches(play: Play) -> None:
    """A sidecar that was killed and started again sends nothing to the master until the template has reported what
    runs: then training goes on as if nothing had been."""
    play.tell(RESTARTED, MasterConnected(), template(running=FIRST, workers=((0, 101), (1, 102))))
    play.tell(MasterSaid(Welcome(1)), UsageSampled(1.9, 640.0))


def the_template_dies(play: Play) -> None:
    """The template dies and its worker processes with it: what is left is swept, the master gets a report, and a new
    template makes the member ready again. The generation that died cannot be started again."""
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)), HookDisconnected("c1", True), TrainerEnded(50))
    play.tell(template(pid=60, connection="c2"), PortFound(2001), start(2, FIRST))


def a_new_master_hears_all_it_missed(play: Play) -> None:
    """The master dies while a process is killed: the new one gets reports of what runs, what ended and the steps."""
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)), MasterDisconnected())
    play.tell(PagesRead(FIRST, tuple(RankProgress(rank, 3, 0.1, "step") for rank in (0, 1))))
    play.tell(WorkerExited(FIRST, killed(0, 101)), MasterConnected(), MasterSaid(Welcome(2)))


def a_member_leaves_without_a_word(play: Play) -> None:
    """After SIGTERM a member continues training and waits for Finish; without one it ends itself in time."""
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)), MasterDisconnected())
    play.tell(TerminationAsked("eviction", 10.0))
    play.without_pages()
    play.pass_time(6.0)
    play.tell(TrainerEnded(50))


def a_job_ends_well(play: Play) -> None:
    """All worker processes end with 0, the master says Finish, the trainer ends, and then the sidecar."""
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)))
    play.tell(WorkerExited(FIRST, ended_well(0, 101)), WorkerExited(FIRST, ended_well(1, 102)))
    play.tell(MasterSaid(Finish(OrderId(2), 0, "every member is done")), TrainerEnded(50))


def the_owner_is_gone(play: Play) -> None:
    """The lifeline is lost: everything of the member is killed and the sidecar ends."""
    play.tell(BEGAN, template(), LifelineLost(), MasterConnected())


def a_member_is_cut_off(play: Play) -> None:
    """Its neighbours answer in turn; then none does, and the link to the master is up and dead: it asks all of them
    and the master, stops its worker processes when the master would give it up, and says why when it is heard again."""
    play.ready()
    play.tell(start(1, FIRST, neighbours=NEIGHBOURS), WorkersStarted(FIRST, (101, 102)))
    play.without_pages()
    play.without_reports()
    play.pass_time(0.1)
    play.tell(*(NeighbourProbed(each, True) for each in NEIGHBOURS))
    play.pass_time(1.0)
    play.tell(NeighbourProbed(NEIGHBOURS[1], True))
    play.pass_time(4.0)
    play.tell(WorkersStopped(FIRST), PortFound(2001), MasterDisconnected(), MasterConnected(), MasterSaid(Welcome(1)))


STORIES: dict[Callable[[Play], None], tuple[str, ...]] = {
    a_member_is_cut_off: ("StopWorkers", "Neighbour"),
    a_crash_and_the_next_generation: (
        "WorkerExit",
        "StartWorkers",
        "StopWorkers",
        "Start.restart_count",
        "Start.group_rank",
        "Start.nproc",
    ),
    a_sidecar_reattaches: ("HookConnected", "Hello"),
    the_template_dies: ("HookConnected",),
    a_new_master_hears_all_it_missed: ("Hello",),
    a_member_leaves_without_a_word: (),
    a_job_ends_well: ("WorkerExit",),
    the_owner_is_gone: ("Began",),
}
"""The types that each story is about, whose fields are shown in full."""


@cache
def told(story: Callable[[Play], None]) -> tuple[list[str], set[tuple[str, str]]]:
    play, telling = Play(), Telling(STORIES[story])
    story(play)
    return telling.lines(play.story), telling.shown


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_matches_its_transcript(story: Callable[[Play], None], request: pytest.FixtureRequest) -> None:
    proves = " ".join((story.__doc__ or "").split())
    text = "\n".join([f"# {proves}", *told(story)[0], ""])
    path = FOLDER / f"{story.__name__}.txt"
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert text == path.read_text()
