"""Who measures with whom in a round of the node check, and what the rounds together say about each member.

Pure functions over what the probes found. Laws: nobody is condemned for an all-gather that failed unless it failed with
two others, one of whom is known to be well, because two that fail together say nothing about which of them is broken,
or whether it is their way to each other alone; a member that was well once, in whatever round, is not faulty; and a
straggler is slower than twice the median in its *best*
round, compute and network each for itself. In a group of three everybody measures with each of the others, and the best
counts, so that no bad one spoils two.

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
SAYS_NOTHING = ("port taken", "interrupted", "gone")
"""Results that are nobody's fault: the member is measured again."""
TIMES_THE_MEDIAN = 2.0
LEAST_COMPUTE, LEAST_NETWORK = 0.02, 0.03
"""Seconds beyond the median that a straggler takes at the least: below that it is the noise of a busy machine."""
MET_WITHIN = 3.0
"""Seconds between the beginnings of two probes; they wait 4 s for each other."""
LONGEST = 3600.0


def answer_of(message: Checked, shares_its_machine: bool, is_contained: bool = False, now: float = 0.0) -> Answer:
    """As it came at this moment. On a machine that others of the job share, CPU time counts: they disturb each other
    while they measure. In a container (a pod's, or an isolated
    member's cgroup) also what that holds back itself, by its CPU limit or what else runs in it."""
    own = (message.compute, message.cpu, message.held_up, message.elapsed)
    times = (*own, *(peer.seconds for peer in message.peers))
    if not all(0 <= seconds <= LONGEST for seconds in times):
        return Answer("absurd", f"it says that it took {', '.join(f'{seconds:g}' for seconds in times)} s")
    compute = message.compute
    if shares_its_machine and message.cpu:
        compute = message.cpu + (message.held_up if is_contained else 0.0)
    began = now - message.elapsed
    return Answer(message.result, message.error, message.kind, compute, message.elapsed, message.peers, began)


# -- who with whom ------------------------------------------------------------------------------------------------
def first(subjects: Iterable[MemberId], helpers: Sequence[MemberId], seed: str) -> Groups:
    """In a random order that the seed decides; each with one that is known to be well, while there are some."""
    order = sorted(subjects, key=lambda member: (crc32(f"{seed}/{member}".encode()), member))
    groups = [[subject, helper] for subject, helper in zip(order, helpers, strict=False)]
    left = order[len(groups) :]
    groups += [left[i : i + 2] for i in range(0, len(left) - 1, 2)]
    return _with_odd(groups, left[-1:] if len(left) % 2 else [], ())


def again(suspicion: Sequence[MemberId], helpers: Sequence[MemberId], rounds: Sequence[Round]) -> Groups:
    """The most suspicious with the least, and with nobody whom it has met where that can be."""
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
    """The fastest that is free and new to it, else the fastest that is free. Those who were taken leave the front, so
    that looking stays short."""
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
    """The failed first, then the slow; who passed in little time comes last."""

    def key(member: MemberId) -> tuple[bool, float, MemberId]:
        finding = found[member]
        return (finding.verdict == OK, -(finding.compute + finding.network), member)

    return sorted(subjects, key=key)


# -- what it says -------------------------------------------------------------------------------------------------
def findings(rounds: Sequence[Round], good: Iterable[MemberId] = ()) -> dict[MemberId, Finding]:
    """Of everybody who took part. `good`: those who are known to be well from before."""
    links = _links(rounds)
    well = set(good) | {member for member, tried in links.items() if any(not error for _o, _s, error in tried)}
    members = sorted({member for each in rounds for group in each.groups for member in group})
    return {member: _finding(member, rounds, links.get(member, []), well) for member in members}


_Link = tuple[MemberId, float, str]


def _links(rounds: Sequence[Round]) -> dict[MemberId, list[_Link]]:
    """By member: with whom it tried the all-gather, how long that took, and what was wrong. One that failed because the
    other one's probe did, with one that does not even reach itself, or that began at another time (its order came
    late), is left out: it says nothing about this member."""
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


def _finding(member: MemberId, rounds: Sequence[Round], links: list[_Link], well: set[MemberId]) -> Finding:
    answers = [(r.number, r.answers[member]) for r in rounds if member in r.answers]
    said = [(number, a) for number, a in answers if a.result not in SAYS_NOTHING]
    passed = [a for _number, a in said if a.result == OK]
    times = [a for a in passed if a.compute > 0]
    compute, kind = min(((a.compute, a.kind) for a in times), default=(0.0, ""))
    network = min((seconds for _other, seconds, error in links if not error), default=0.0)
    if said and not passed:
        verdict = "faulty" if len(said) > 1 else "unclear"
        return Finding(verdict, "compute", _how(said))
    own = [peer for a in passed for peer in a.peers if peer.member == member]
    if own and all(peer.error for peer in own):
        verdict = "faulty" if len(own) > 1 else "unclear"
        return Finding(verdict, "network", f"it does not reach itself: {own[-1].error}", kind, compute)
    if not said:
        return Finding("unmeasured", reason=answers[-1][1].error if answers else "it was never measured")
    failed = [(other, error) for other, _seconds, error in links if error]
    if failed and len(failed) == len(links):
        is_clear = len({other for other, _error in failed}) > 1 and any(other in well for other, _error in failed)
        reason = "; ".join(f"with {other}: {error}" for other, error in failed[-2:])
        return Finding("faulty" if is_clear else "unclear", "network", reason, kind, compute)
    had_company = any(len(group) > 1 for each in rounds for group in each.groups if member in group)
    if had_company and not links:
        return Finding("unmeasured", "network", "nobody was left to measure it with", kind, compute)
    return Finding(OK, "", "", kind, compute, network)


def _how(said: Sequence[tuple[int, Answer]]) -> str:
    """Which check failed in which rounds, with how many seconds."""
    return "; ".join(f"round {n}: {a.result} after {a.elapsed:.2f} s{f' ({a.error})' if a.error else ''}"
                     for n, a in said[-2:])  # fmt: skip


def stragglers(
    subjects: Iterable[MemberId], found: Mapping[MemberId, Finding], known: Mapping[MemberId, Finding]
) -> dict[MemberId, Finding]:
    """Who is slower than twice the median, with the check and the seconds. `known`: members measured before. Never more
    than half: the median of an even number is the lower one of the two in its middle."""
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
