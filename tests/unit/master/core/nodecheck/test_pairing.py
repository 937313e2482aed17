"""Pairs of the node check, and what their results show: laws over many sizes, and cases that need a third member."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.nodecheck import pairing
from outrider.master.core.state.nodecheck import Answer, Finding, Groups, Round
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.node_check import Checked, PeerCheck


def ids(count: int, first: int = 0) -> list[MemberId]:
    return [MemberId(f"worker-{n}") for n in range(first, first + count)]


def played(number: int, groups: Groups, bad: dict[MemberId, str], compute: float = 0.05) -> Round:
    """The results of these groups if these members are bad: `dies`, `mute`, `slow` or `taken`."""

    def peer(one: MemberId, other: MemberId) -> PeerCheck:
        failed = {"mute", "dies", "taken"} & {bad.get(one, ""), bad.get(other, "")}
        return PeerCheck(other, 0.0, "no answer") if failed else PeerCheck(other, 0.01)

    def answer(member: MemberId, group: tuple[MemberId, ...]) -> Answer:
        if bad.get(member) == "dies":
            return Answer("died", "its process was killed by SIGKILL", elapsed=0.02)
        if bad.get(member) == "taken":
            return Answer("port taken", "port 2000 is taken")
        seconds = compute * (5 if bad.get(member) == "slow" else 1)
        peers = tuple(peer(member, other) for other in group if other != member)
        return Answer("ok", "", "torch cpu", seconds, 0.4, peers)

    return Round(number, groups, {m: answer(m, group) for group in groups for m in group})


def rounds_of(members: list[MemberId], bad: dict[MemberId, str], most: int = 2) -> list[Round]:
    rounds: list[Round] = []
    groups = pairing.first(members, [], "seed")
    for number in range(most):
        rounds.append(played(number, groups, bad))
        groups = pairing.again(pairing.suspicion(members, pairing.findings(rounds)), [], rounds)
    return rounds


# -- groups -------------------------------------------------------------------------------------------------------
@given(st.integers(1, 60), st.text(max_size=5))
def test_each_member_is_in_one_group_of_two_or_three(count: int, seed: str) -> None:
    members = ids(count)
    rounds = [Round(0, pairing.first(members, [], seed), {})]
    groups = pairing.again(members, [], rounds)
    for found in (rounds[0].groups, groups):
        assert sorted(m for group in found for m in group) == sorted(members)
        assert all(len(group) in (2, 3) for group in found) or count == 1


@given(st.integers(4, 60), st.text(max_size=5))
def test_in_the_second_round_each_member_has_a_new_partner(count: int, seed: str) -> None:
    members = ids(count)
    rounds = [Round(0, pairing.first(members, [], seed), {})]
    again = pairing.again(members, [], rounds)
    before = pairing._met(rounds)
    with_new_partner = [m for group in again for m in group if set(group) - {m} - before[m]]
    assert len(with_new_partner) >= count - 2, "the last two may have met, if no other member is left"


def test_the_order_of_the_first_round_comes_from_the_seed() -> None:
    members = ids(16)
    assert pairing.first(members, [], "a") == pairing.first(reversed(members), [], "a")
    assert pairing.first(members, [], "a") != pairing.first(members, [], "b")


def test_a_new_member_is_measured_with_a_healthy_one() -> None:
    new, good = ids(2, 4), ids(2)
    first = pairing.first(new, good, "seed")
    assert all(len(group) == 2 and group[0] in new and group[1] in good for group in first)
    again = pairing.again(new, good, [Round(0, first, {})])
    assert {frozenset(group) for group in again}.isdisjoint({frozenset(group) for group in first})


def test_the_slowest_is_paired_with_the_fastest() -> None:
    members = ids(6)
    found = {m: Finding("ok", compute=0.1 * (index + 1)) for index, m in enumerate(members)}
    suspects = pairing.suspicion(members, found)
    assert suspects[0] == members[-1]
    assert pairing.again(suspects, [], [])[0] == (members[-1], members[0])


def test_four_thousand_members_are_paired_without_comparing_all_pairs() -> None:
    members = ids(4096)
    rounds = [Round(0, pairing.first(members, [], "seed"), {})]
    assert len(pairing.again(members, [], rounds)) == 2048


# -- findings -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", range(3, 12))
@pytest.mark.parametrize("what", ["dies", "mute"])
def test_one_bad_member_is_found_and_no_other(count: int, what: str) -> None:
    for victim in ids(count):
        found = pairing.findings(rounds_of(ids(count), {victim: what}))
        assert [m for m, f in found.items() if f.verdict != "ok"] == [victim], f"{count} members, {victim}"
        assert found[victim].verdict == "faulty"
        assert found[victim].check == ("compute" if what == "dies" else "network")


@given(st.integers(4, 30), st.data())
def test_a_healthy_member_is_never_faulty(count: int, data: st.DataObject) -> None:
    members = ids(count)
    kinds = st.sampled_from(["dies", "mute", "taken", "slow"])
    bad = data.draw(st.dictionaries(st.sampled_from(members), kinds, max_size=count))
    found = pairing.findings(rounds_of(members, bad, 4))
    condemned = {m for m, f in found.items() if f.verdict == "faulty"}
    assert condemned <= {m for m, kind in bad.items() if kind in ("dies", "mute")}


def test_of_two_members_that_fail_together_neither_is_faulty() -> None:
    found = pairing.findings(rounds_of(ids(2), {ids(1)[0]: "mute"}))
    assert {f.verdict for f in found.values()} == {"unclear"}


def test_a_member_that_failed_only_with_the_same_healthy_one_is_not_faulty() -> None:
    one, two, three = ids(3)
    rounds = [played(n, ((one, two),), {two: "mute"}) for n in range(2)]
    assert pairing.findings(rounds, [two])[one].verdict == "unclear"
    rounds.append(played(2, ((one, three),), {one: "mute"}))
    assert pairing.findings(rounds, [two])[one].verdict == "faulty"


def test_of_two_members_the_one_that_cannot_reach_itself_is_faulty() -> None:
    one, two = ids(2)
    failed, itself = PeerCheck(two, 0.0, "no answer"), PeerCheck(one, 0.0, "no route to host")
    of_two = (PeerCheck(one, 0.0, "no answer"), PeerCheck(two, 0.01))
    answers = {one: Answer("ok", "", "python", 0.05, 1.0, (failed, itself)),
               two: Answer("ok", "", "python", 0.05, 1.0, of_two)}  # fmt: skip
    found = pairing.findings([Round(n, ((one, two),), answers) for n in range(2)])
    assert found[one].verdict == "faulty"
    assert "no route to host" in found[one].reason
    assert found[two].verdict == "unmeasured", "there is no other member to measure it with"


def test_a_member_whose_partner_got_its_order_late_is_not_faulty() -> None:
    one, two, three, four = ids(4)
    late = PeerCheck(two, 0.0, "it did not connect within 4 s")
    refused = PeerCheck(one, 0.0, "Connection refused")
    first = {one: Answer("ok", "", "python", 0.05, 5.0, (late,), began=0.0),
             two: Answer("ok", "", "python", 0.05, 5.0, (refused,), began=10.0)}  # fmt: skip
    second = played(1, ((one, three), (two, four)), {three: "mute"})
    found = pairing.findings([Round(0, ((one, two),), first), second])
    assert (found[one].verdict, found[two].verdict) == ("unclear", "ok")


def test_a_member_that_passed_once_is_not_faulty() -> None:
    members, bad = ids(4), {ids(1)[0]: "dies"}
    first = played(0, pairing.first(members, [], "s"), bad)
    second = played(1, pairing.again(pairing.suspicion(members, pairing.findings([first])), [], [first]), {})
    assert pairing.findings([first, second])[ids(1)[0]].verdict == "ok"


def test_a_taken_port_is_not_the_fault_of_a_member() -> None:
    found = pairing.findings(rounds_of(ids(4), {ids(1)[0]: "taken"}))
    assert found[ids(1)[0]].verdict == "unmeasured"


def test_a_straggler_is_slower_than_twice_the_median_in_its_best_round() -> None:
    members, slow = ids(4), ids(1, 2)[0]
    found = pairing.findings(rounds_of(members, {slow: "slow"}))
    stragglers = pairing.stragglers(members, found, {})
    assert list(stragglers) == [slow]
    assert "0.250 s" in stragglers[slow].reason
    assert "median of 0.050 s" in stragglers[slow].reason


def test_times_of_other_kinds_are_not_compared() -> None:
    found = {m: Finding("ok", kind="torch cuda", compute=0.05) for m in ids(3)}
    found[MemberId("worker-3")] = Finding("ok", kind="python", compute=0.5)
    assert pairing.stragglers(found, found, {}) == {}


def test_some_milliseconds_more_are_noise() -> None:
    found = {m: Finding("ok", kind="torch cpu", compute=0.001, network=0.001) for m in ids(3)}
    found[MemberId("worker-3")] = Finding("ok", kind="torch cpu", compute=0.015, network=0.02)
    assert pairing.stragglers(found, found, {}) == {}


def test_a_member_with_a_slow_network_alone_is_a_straggler() -> None:
    found = {m: Finding("ok", kind="torch cpu", compute=0.05, network=0.01) for m in ids(3)}
    found[MemberId("worker-3")] = Finding("ok", kind="torch cpu", compute=0.05, network=0.09)
    assert pairing.stragglers(found, found, {})[MemberId("worker-3")].check == "network"


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=40))
def test_never_more_than_half_are_stragglers(times: list[float]) -> None:
    found = {m: Finding("ok", kind="numpy", compute=t) for m, t in zip(ids(len(times)), times, strict=True)}
    assert 2 * len(pairing.stragglers(found, found, {})) <= len(times)


@pytest.mark.parametrize("times", [(-0.1, 0.0), (0.1, -1.0), (4000.0, 0.0)])
def test_impossible_times_are_a_result_of_their_own(times: tuple[float, float]) -> None:
    message = Checked(OrderId(1), 0, "ok", "", "torch cpu", *times)
    assert pairing.answer_of(message, False).result == "absurd"


def test_on_a_shared_machine_cpu_time_counts() -> None:
    message = Checked(OrderId(1), 0, "ok", "", "torch cpu", 0.3, 0.05)
    assert pairing.answer_of(message, True).compute == 0.05
    assert pairing.answer_of(message, True, is_contained=True).compute == 0.05
    assert pairing.answer_of(message, False).compute == 0.3


def test_time_that_a_container_holds_itself_back_counts_on_a_shared_machine_too() -> None:
    """Even if it is more than the wall time of the best repeat, which fell into a pause of what held it back."""
    message = Checked(OrderId(1), 0, "ok", "", "torch cpu", 0.3, 0.05, held_up=0.45)
    assert pairing.answer_of(message, True, is_contained=True).compute == 0.5
    assert pairing.answer_of(message, True, is_contained=False).compute == 0.05
    assert pairing.answer_of(message, False, is_contained=True).compute == 0.3
