"""Reports a round of the node check: two lines by rank index in Events, and a part of the status.

The word for a member reflects all rounds so far, so that a member that is excluded for being slow does not read "ok" at
the same moment. Of many members only those that stand out are named, so that a line fits into an Event.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outrider.master.core.nodecheck.pairing import INCONCLUSIVE, OK
from outrider.master.core.state.job import State
from outrider.master.core.state.nodecheck import Answer, Finding, Round
from outrider.wire.ids import MemberId

NAMED = 32
"""Number of members up to which all are named."""
ROUNDS_KEPT = 4
SLOW = "slow"


def announce(state: State, done: Round, elapsed: float, slow: Collection[MemberId]) -> None:
    """Announces the two lines, and adds the round to the status. `slow`: the stragglers by the rounds so far."""
    members = sorted(done.answers, key=lambda m: _order(state, m))
    took = {m: _seconds(done.answers[m]) for m in members}
    words = {m: _word(m, done.answers[m], slow) for m in members}
    times = _row(
        state, {m: f"{seconds:.3f}" if seconds else "-" for m, seconds in took.items()}, _slowest(took), "more"
    )
    state.announce("NodeCheckRound", f"check round {done.number}: elapsed {elapsed:.2f} s {{{times}}}")
    row = _row(state, words, [m for m in members if words[m] != OK], OK)
    is_bad = any(words[m] != OK for m in members)
    text = f"check round {done.number}: status {{{row}}}{_not_measured(state, done)}"
    state.announce("NodeCheckRound", text, warning=is_bad)
    shown = members if len(members) <= NAMED else [*_slowest(took), *(m for m in members if words[m] != OK)][:NAMED]
    state.nodecheck.rounds.append({
        "round": done.number,
        "elapsed": round(elapsed, 3),
        "members": {_name(state, m): _document(m, done.answers[m], words[m]) for m in dict.fromkeys(shown)},
        "ok": sum(1 for m in members if words[m] == OK),
        "measured": len(members),
    })  # fmt: skip
    del state.nodecheck.rounds[:-ROUNDS_KEPT]


def note_verdicts(
    state: State, done: Round, found: Mapping[MemberId, Finding], slow: Mapping[MemberId, Finding]
) -> None:
    """Adds the verdicts on members that did not pass, or are stragglers, to the last round in the status."""
    verdicts = {_name(state, m): f"{finding.verdict}: {finding.check}: {finding.reason}" for m, finding in sorted(
        {**{m: f for m, f in found.items() if f.verdict in ("faulty", "unclear")}, **slow}.items())}  # fmt: skip
    if state.nodecheck.rounds and verdicts:
        state.nodecheck.rounds[-1]["verdicts"] = dict(list(verdicts.items())[:NAMED])


def _word(member: MemberId, answer: Answer, slow: Collection[MemberId]) -> str:
    """`ok`, or what failed in the member or between it and its group."""
    if answer.result != OK:
        return answer.result if answer.result in INCONCLUSIVE else f"failed ({answer.result})"
    others = [peer for peer in answer.peers if peer.member != member] or answer.peers
    if others and all(peer.error for peer in others):
        return "unreachable"
    return SLOW if member in slow else OK


def _not_measured(state: State, done: Round) -> str:
    """The members that were not measured in this round because their earlier result is valid."""
    others = sorted((m.id for m in state.members.values() if m.is_usable and m.finding and m.id not in done.answers),
                    key=lambda m: _order(state, m))  # fmt: skip
    if not others:
        return ""
    named = ", ".join(_name(state, m) for m in others[:NAMED]) + (", …" if len(others) > NAMED else "")
    return f"; not measured again (earlier result is valid): {named}"


def _seconds(answer: Answer) -> float:
    network = [peer.seconds for peer in answer.peers if not peer.error]
    return answer.compute + min(network, default=0.0)


def _slowest(took: Mapping[MemberId, float]) -> list[MemberId]:
    return sorted(took, key=lambda m: -took[m])[: NAMED // 2]


def _row(state: State, texts: Mapping[MemberId, str], main: list[MemberId], rest: str) -> str:
    members = list(texts) if len(texts) <= NAMED else main[:NAMED]
    row = [f"{_name(state, m)}: {texts[m]}" for m in members]
    left = len(texts) - len(members)
    return ", ".join([*row, *([f"… {left} {rest}"] if left else [])])


def _name(state: State, member_id: MemberId) -> str:
    """The rank index of a member, or the name of a spare."""
    member = state.members.get(member_id) or state.placement.past.get(member_id)
    index = None if member is None else member.rank_index
    return str(member_id) if index is None else str(index)


def _order(state: State, member_id: MemberId) -> tuple[bool, int, str]:
    name = _name(state, member_id)
    return (not name.isdigit(), int(name) if name.isdigit() else 0, name)


def _document(member: MemberId, answer: Answer, word: str) -> dict[str, object]:
    network = [peer.seconds for peer in answer.peers if not peer.error and peer.member != member]
    errors = [answer.error, *(f"with {peer.member}: {peer.error}" for peer in answer.peers if peer.error)]
    return {
        "member": str(member),
        "status": word,
        "kind": answer.kind,
        "compute": round(answer.compute, 4),
        "network": round(min(network, default=0.0), 4),
        "elapsed": round(answer.elapsed, 3),
        "why": "; ".join(error for error in errors if error),
    }
