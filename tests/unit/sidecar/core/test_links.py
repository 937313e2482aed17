"""A sidecar's reports of its links: round trip and loss periodically, changes of answering at once."""

from __future__ import annotations

from outrider.sidecar.core.actions import Action, ProbeNeighbour
from outrider.sidecar.core.events import Event, NeighbourLeft, NeighbourProbed, Stalled, WorkersStarted, WorkersStopped
from outrider.wire.ids import MemberId
from outrider.wire.messages.links import LinkSeen, Neighbour
from outrider.wire.messages.report import Report
from tests.unit.sidecar.core.play import FIRST, Play, messages, start, stop

ONE = Neighbour(MemberId("worker-1"), "10.0.0.2", 9000)
TWO = Neighbour(MemberId("worker-2"), "10.0.0.3", 9000)


class Among(Play):
    """A member whose neighbours answer as long as they are within reach."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: set[Neighbour] = {ONE, TWO}
        self.reports: list[tuple[float, tuple[LinkSeen, ...]]] = []
        self.ready()
        self.tell(start(1, FIRST, neighbours=(ONE, TWO)), WorkersStarted(FIRST, (101, 102)))
        self.without_pages()

    def tell(self, *events: Event) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            actions = super().tell(event)
            self.reports += [(self.now, m.links) for m in messages(actions) if isinstance(m, Report)]
            for action in actions:
                if isinstance(action, ProbeNeighbour):
                    echo = (True, 0.004, 0) if action.neighbour in self.reached else (False, 0.0, 3)
                    self.tell(NeighbourProbed(action.neighbour, *echo))
        return actions

    def told(self) -> list[tuple[LinkSeen, ...]]:
        """The links in all reports since the last call."""
        found, self.reports = [links for _at, links in self.reports if links], []
        return found


def test_all_neighbours_are_reported_every_ten_seconds_and_reports_between_are_empty() -> None:
    play = Among()
    play.pass_time(60)
    told = play.told()
    assert 5 <= len(told) <= 7
    assert [each.member for each in told[-1]] == ["worker-1", "worker-2"]
    last = told[-1][0]
    assert (last.round_trip, last.lost, last.sent, last.missing) == (0.004, 0, 20, 0.0)


def test_a_neighbour_that_stops_answering_is_in_the_next_report_and_so_is_its_return() -> None:
    play = Among()
    play.pass_time(15)
    play.told()
    play.reached = {ONE}
    play.pass_time(4)
    (gone,) = play.told()[0]
    assert (gone.member, gone.lost % 3) == ("worker-2", 0)
    assert 0 < gone.missing < 2
    play.reached = {ONE, TWO}
    play.pass_time(4)
    back = [each for links in play.told() for each in links if each.member == "worker-2"]
    assert back[-1].missing == 0.0
    assert back[-1].lost > 0


def test_a_pause_of_its_own_is_not_evidence_against_neighbours() -> None:
    play = Among()
    play.pass_time(15)
    play.tell(NeighbourProbed(TWO, False, 0.0, 3), Stalled(5.0))
    play.told()
    play.pass_time(1.5)
    assert all(each.missing == 0.0 for links in play.told() for each in links)


def test_a_neighbour_that_has_announced_its_end_is_not_reported() -> None:
    play = Among()
    play.pass_time(15)
    play.tell(NeighbourLeft(TWO.address, TWO.port))
    play.told()
    play.pass_time(25)
    assert {each.member for links in play.told() for each in links} == {"worker-1"}


def test_without_a_generation_no_neighbour_is_probed_or_missing() -> None:
    play = Among()
    play.pass_time(15)
    play.reached = {ONE}
    play.pass_time(3)
    assert any(each.missing > 0 for links in play.told() for each in links)
    play.tell(stop(2, FIRST), WorkersStopped(FIRST))
    play.told()
    play.pass_time(25)
    assert {each.missing for links in play.told() for each in links if each.member == "worker-2"} == {0.0}
