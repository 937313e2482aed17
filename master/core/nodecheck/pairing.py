"""Pairs members for the rounds of the node check, and judges each member by all rounds.

These are pure functions over the results of the probes. Laws: an all-gather that failed makes a member faulty only if
it failed with two others, one of which is known to be healthy. Two members that fail together do not show which of them
is broken, or whether only the path between them is. A member that passed once, in any round, is not faulty. A straggler
is slower than twice the median in its *best* round, for compute and network separately. In a group of three each member
measures with both others and the best result counts, so that one bad member does not spoil the results of two.

Times of one kind (torch on a GPU, torch on the CPU, numpy, plain Python) are compared with their own kind only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from zlib import crc32

from outrider.master.core.state.nodecheck import Answer, Finding, Groups, Round
from outrider.wire.ids import MemberId
from outrider.wire.messages.node_check import Checked

OK = "ok"
INCONCLUSIVE = ("port taken", "interrupted", "gone")
"""Results that are not the fault of a member, which is then measured again."""
TIMES_THE_MEDIAN = 2.0
LEAST_COMPUTE, LEAST_NETWORK = 0.02, 0.03
"""Seconds beyond the median that a straggler takes at least: less is the noise of a busy machine."""
MET_WITHIN = 3.0
"""The most seconds between the starts of two probes that can meet; each waits 4 s for the other."""
LONGEST = 3600.0


def answer_of(message: Checked, shares_its_machine: bool, is_contained: bool = False, now: float = 0.0) -> Answer:
    """The answer in a message that arrives at `now`. On a machine that members of the job share, CPU time counts,
    because they disturb each other while they measure. In a container (a pod's, or an isolated member's cgroup) the
    time for which the container itself held the probe back counts too: by its CPU limit, or by what else runs in it."""
    own = (message.compute, message.cpu, message.held_up, message.elapsed)
    times = (*own, *(peer.seconds for peer in message.peers))
    if not all(0 <= seconds <= LONGEST for seconds in times):
        return Answer("absurd", f"it reports impossible times: {', '.join(f'{seconds:g}' for seconds in times)} s")
    compute = message.compute
    if shares_its_machine and message.cpu:
        compute = message.cpu + (message.held_up if is_contained else 0.0)
    began = now - message.elapsed
    return Answer(message.result, message.error, message.kind, compute, message.elapsed, message.peers, began)


# -- groups -------------------------------------------------------------------------------------------------------
def first(subjects: Iterable[MemberId], helpers: Sequence[MemberId], seed: str) -> Groups:
    """The groups of the first round, in random order from the seed: each subject with a helper while there are any."""
    order = sorted(subjects, key=lambda member: (crc32(f"{seed}/{member}".encode()), member))
    groups = [[subject, helper] for subject, helper in zip(order, helpers, strict=False)]
    left = order[len(groups) :]
    groups += [left[i : i + 2] for i in range(0, len(left) - 1, 2)]
    return _with_odd(groups, left[-1:] if len(left) % 2 else [], ())


def again(suspicion: Sequence[MemberId], helpers: Sequence[MemberId], rounds: Sequence[Round]) -> Groups:
    """The groups of a later round: the most suspicious with the least suspicious, if possible with a new partner."""
    met = _met(rounds)
    fast = deque([*helpers, *reversed(suspicion)])
    taken: set[MemberId] = set()
    groups: list[list[MemberId]] = []
    odd: list[MemberId] = []
    for member in suspicion:
        if member in taken:
            continue
        taken.add(member)
        partner = _partner(fast, taken, met.get(member, set()))
        if partner is None:
            odd.append(member)
        else:
            taken.add(partner)
            groups.append([member, partner])
    return _with_odd(groups, odd, met.get(odd[0], ()) if odd else ())


def _partner(fast: deque[MemberId], taken: set[MemberId], met: set[MemberId]) -> MemberId | None:
    """The fastest free member that it has not met, else the fastest free one. Taken members are removed from the front,
    so that the search stays short."""
    while fast and fast[0] in taken:
        fast.popleft()
    known = None
    for other in fast:
        if other not in taken and other not in met:
            return other
        if known is None and other not in taken:
            known = other
    return known


def _with_odd(groups: list[list[MemberId]], odd: list[MemberId], met: Iterable[MemberId]) -> Groups:
    if odd and groups:
        known = set(met)
        fresh = (group for group in reversed(groups) if not known & set(group))
        next(fresh, groups[-1]).extend(odd)
    elif odd:
        groups = [odd]
    return tuple(tuple(group) for group in groups)


def _met(rounds: Sequence[Round]) -> dict[MemberId, set[MemberId]]:
    found: dict[MemberId, set[MemberId]] = {}
    for each in rounds:
        for group in each.groups:
            for member in group:
                found.setdefault(member, set()).update(set(group) - {member})
    return found


def suspicion(subjects: Iterable[MemberId], found: Mapping[MemberId, Finding]) -> list[MemberId]:
    """The members by suspicion: failed ones first, then slow ones; the fastest that passed is last."""

    def key(member: MemberId) -> tuple[bool, float, MemberId]:
        finding = found[member]
        return (finding.verdict == OK, -(finding.compute + finding.network), member)

    return sorted(subjects, key=key)


# -- findings -----------------------------------------------------------------------------------------------------
def findings(rounds: Sequence[Round], good: Iterable[MemberId] = ()) -> dict[MemberId, Finding]:
    """The finding for each member that took part. `good`: members that were known to be healthy before."""
    links = _links(rounds)
    healthy = set(good) | {member for member, tried in links.items() if any(not error for _o, _s, error in tried)}
    members = sorted({member for each in rounds for group in each.groups for member in group})
    return {member: _finding(member, rounds, links.get(member, []), healthy) for member in members}


_Link = tuple[MemberId, float, str]


def _links(rounds: Sequence[Round]) -> dict[MemberId, list[_Link]]:
    """The all-gathers of each member: the other one, the seconds and the error. A failed one is left out if it shows
    nothing about this member: the other's probe failed, the other cannot even reach itself, or the two began at
    different times because an order came late."""
    broken = {member for each in rounds for member, answer in each.answers.items() if _is_cut_off(member, answer)}
    found: dict[MemberId, list[_Link]] = {}
    for each in rounds:
        for member, answer in each.answers.items():
            for peer in answer.peers:
                other = each.answers.get(peer.member)
                is_own = peer.member == member
                is_void = other is None or other.result != OK or peer.member in broken
                if not is_own and peer.error and (is_void or not _were_together(answer, other)):
                    continue
                if answer.result == OK and not is_own:
                    found.setdefault(member, []).append((peer.member, peer.seconds, peer.error))
    return found


def _were_together(one: Answer, other: Answer | None) -> bool:
    return other is not None and abs(one.began - other.began) <= MET_WITHIN


def _is_cut_off(member: MemberId, answer: Answer) -> bool:
    return any(peer.member == member and peer.error for peer in answer.peers)


def _finding(member: MemberId, rounds: Sequence[Round], links: list[_Link], healthy: set[MemberId]) -> Finding:
    answers = [(r.number, r.answers[member]) for r in rounds if member in r.answers]
    conclusive = [(number, a) for number, a in answers if a.result not in INCONCLUSIVE]
    passed = [a for _number, a in conclusive if a.result == OK]
    times = [a for a in passed if a.compute > 0]
    compute, kind = min(((a.compute, a.kind) for a in times), default=(0.0, ""))
    network = min((seconds for _other, seconds, error in links if not error), default=0.0)
    if conclusive and not passed:
        verdict = "faulty" if len(conclusive) > 1 else "unclear"
        return Finding(verdict, "compute", _how(conclusive))
    own = [peer for a in passed for peer in a.peers if peer.member == member]
    if own and all(peer.error for peer in own):
        verdict = "faulty" if len(own) > 1 else "unclear"
        return Finding(verdict, "network", f"it cannot reach itself: {own[-1].error}", kind, compute)
    if not conclusive:
        return Finding("unmeasured", reason=answers[-1][1].error if answers else "it was never measured")
    failed = [(other, error) for other, _seconds, error in links if error]
    if failed and len(failed) == len(links):
        is_clear = len({other for other, _error in failed}) > 1 and any(other in healthy for other, _error in failed)
        reason = "; ".join(f"with {other}: {error}" for other, error in failed[-2:])
        return Finding("faulty" if is_clear else "unclear", "network", reason, kind, compute)
    had_company = any(len(group) > 1 for each in rounds for group in each.groups if member in group)
    if had_company and not links:
        return Finding("unmeasured", "network", "no member was left to measure it with", kind, compute)
    return Finding(OK, "", "", kind, compute, network)


def _how(answers: Sequence[tuple[int, Answer]]) -> str:
    """The failed check of each round, with its seconds."""
    return "; ".join(f"round {n}: {a.result} after {a.elapsed:.2f} s{f' ({a.error})' if a.error else ''}"
                     for n, a in answers[-2:])  # fmt: skip


def stragglers(
    subjects: Iterable[MemberId], found: Mapping[MemberId, Finding], known: Mapping[MemberId, Finding]
) -> dict[MemberId, Finding]:
    """Members slower than twice the median, with the check and the seconds. `known`: findings of earlier checks. Never
    more than half of the members: of an even number the median is the lower one of the two middle values."""
    slow: dict[MemberId, Finding] = {}
    everyone = {**known, **{m: f for m, f in found.items() if f.verdict == OK}}
    computes = _by_kind(everyone)
    networks = [finding.network for finding in everyone.values() if finding.network > 0]
    middle = median_low(networks) if networks else 0.0
    for member in sorted(subjects):
        finding = found[member]
        if finding.verdict != OK:
            continue
        usual = computes.get(finding.kind, 0.0)
        if _is_slow(finding.compute, usual, LEAST_COMPUTE):
            slow[member] = Finding("straggler", "compute", _took(finding.compute, usual, finding.kind))
        elif _is_slow(finding.network, middle, LEAST_NETWORK):
            slow[member] = Finding("straggler", "network", _took(finding.network, middle, "all-gather"))
    return slow


def _by_kind(everyone: Mapping[MemberId, Finding]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for finding in everyone.values():
        if finding.compute > 0:
            times.setdefault(finding.kind, []).append(finding.compute)
    return {kind: median_low(values) for kind, values in times.items()}


def _is_slow(seconds: float, usual: float, least: float) -> bool:
    return usual > 0 and seconds > TIMES_THE_MEDIAN * usual and seconds - usual > least


def _took(seconds: float, usual: float, what: str) -> str:
    return f"{seconds:.3f} s in its best round, {seconds / usual:.1f} times the median of {usual:.3f} s ({what})"
