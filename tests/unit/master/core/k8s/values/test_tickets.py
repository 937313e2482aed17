"""Session tickets: issue and validity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.membership import connections as membership_connections
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Hello

KEY, NOW = b"k" * 32, 1_700_000_000.0
HELLO = Hello(JobName("ns/digits"), MemberId("worker-0"), PodUid("u0"), Role("worker"), RankIndex(0), "")
GOOD = replace(HELLO, ticket=session_ticket.issue(KEY, HELLO, NOW))


def test_a_ticket_is_good_for_its_member_until_it_expires() -> None:
    assert session_ticket.is_good(KEY, GOOD, NOW + 3599)
    assert not session_ticket.is_good(KEY, GOOD, NOW + 3602)


def test_a_member_that_is_linked_has_a_ticket_for_another_half_of_its_time_at_any_moment() -> None:
    assert 2 * membership_connections.TICKET_EVERY <= session_ticket.SECONDS


@pytest.mark.parametrize(
    "other",
    [
        replace(GOOD, job=JobName("ns/other")),
        replace(GOOD, member=MemberId("worker-1")),
        replace(GOOD, uid=PodUid("u1")),
        replace(GOOD, ticket=""),
        replace(GOOD, ticket="nonsense"),
        replace(GOOD, ticket="9" * 40 + ".00"),
        replace(GOOD, ticket="9" * 12 + "." + GOOD.ticket.partition(".")[2]),
        replace(GOOD, ticket=GOOD.ticket + "\udcff"),
    ],
)
def test_and_for_nothing_else(other: Hello) -> None:
    assert not session_ticket.is_good(KEY, other, NOW)


def test_a_ticket_of_other_masters_is_no_ticket() -> None:
    assert not session_ticket.is_good(b"x" * 32, GOOD, NOW)
