"""A peer that sends too much costs the others no more than its share."""

from __future__ import annotations

from outrider.runtime.rate_limit import RateLimit, Verdict

TAKE, PASS_OVER, HANG_UP = Verdict.TAKE, Verdict.PASS_OVER, Verdict.HANG_UP


def made() -> RateLimit:
    return RateLimit(messages=10, messages_a_second=2, bytes=1000, bytes_a_second=100)


def spent(one: RateLimit, times: int, size: int, now: float, *, missed: bool) -> list[Verdict]:
    return [one.spend(size, now, lambda: missed) for _ in range(times)]


def test_messages_that_can_be_missed_are_skipped_beyond_the_share_of_each_second() -> None:
    one = made()
    assert spent(one, 12, 1, 5.0, missed=True) == [TAKE] * 10 + [PASS_OVER] * 2
    assert spent(one, 3, 1, 6.0, missed=True) == [TAKE] * 2 + [PASS_OVER]
    assert spent(one, 11, 1, 100.0, missed=True) == [TAKE] * 10 + [PASS_OVER]


def test_other_messages_use_the_share_of_the_next_seconds_and_then_the_peer_is_disconnected() -> None:
    one = made()
    assert spent(one, 22, 1, 5.0, missed=False) == [TAKE] * 21 + [HANG_UP]
    assert one.is_spent(10.0)
    assert not one.is_spent(11.0)
    assert not one.is_full(11.0)
    assert one.is_full(16.0)


def test_large_messages_count_by_their_bytes() -> None:
    one = made()
    assert spent(one, 3, 600, 5.0, missed=True) == [TAKE, PASS_OVER, PASS_OVER]
    assert spent(made(), 5, 600, 5.0, missed=False) == [TAKE] * 4 + [HANG_UP]


def test_skipped_messages_cost_a_tenth_and_too_many_of_them_disconnect_the_peer() -> None:
    one = made()
    verdicts = spent(one, 200, 1, 5.0, missed=True)
    assert verdicts.count(TAKE) == 10
    assert verdicts[-1] is HANG_UP
    assert 100 <= verdicts.count(PASS_OVER) <= 102


def test_a_message_that_is_too_long_disconnects_the_peer() -> None:
    one = RateLimit(10, 2, 1000, 100, longest=300)
    assert [one.spend(size, 5.0, lambda: False) for size in (300, 301)] == [TAKE, HANG_UP]
