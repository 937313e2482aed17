"""Sentences about slow members, and their part of the status."""

from __future__ import annotations

from collections import Counter
from typing import Any

from outrider.master.core.state.generation import World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.stragglers import Named
from outrider.master.core.stragglers import cause as stragglers_cause
from outrider.master.core.stragglers.detector import NO_SOURCE
from outrider.master.core.text import counted


def sentence(world: World, member: Member, named: Named) -> str:
    """The Event's sentence: which member, on which node, by how much and why."""
    pace, where = named.pace, f" on node {member.node}" if member.node else ""
    rank = world.places[member.id].first_rank + named.local_rank
    times = f"{stragglers_cause.duration(pace.own)}, not {stragglers_cause.duration(pace.others)}"
    whose = "the only other member's" if named.of_two else "the others'"
    return (
        f"{member.id}{where} is a straggler: rank {rank} takes {pace.factor:.2f} times {whose} own time a step "
        f"({times}); {stragglers_cause.of(pace).sentence}."
    )


def document(state: State) -> dict[str, Any]:
    """The part of the status: which members are slow now, and how members are compared, or why not."""
    world = state.world
    if world is None:
        return {"stragglers": [], "straggler_watch": ""}
    rows = [_row(state, world, named) for _, named in sorted(world.comparison.named.items())]
    return {"stragglers": [row for row in rows if row], "straggler_watch": watch_sentence(world)}


def _row(state: State, world: World, named: Named) -> dict[str, Any]:
    member = state.members.get(named.member)
    if member is None:
        return {}
    pace = world.comparison.pace.get(member.id, named.pace)
    return {
        "member": str(member.id),
        "rank": world.places[member.id].first_rank + named.local_rank,
        "node": member.node,
        "factor": round(pace.factor, 2),
        "own_seconds": round(pace.own, 4),
        "others_seconds": round(pace.others, 4),
        "cause": stragglers_cause.of(named.pace).kind,
        "reason": sentence(world, member, named),
    }


def watch_sentence(world: World) -> str:
    """By what members are compared, and why some are not."""
    comparison = world.comparison
    if len(world.places) == 1:
        return "one member: nothing to compare it with"
    compared = Counter(comparison.sources[member] for member in comparison.pace if member in comparison.sources)
    words = [f"{counted(count, 'member')} by {source}" for source, count in sorted(compared.items())]
    mute = sorted(m for m, source in comparison.sources.items() if source == NO_SOURCE)
    parts = [f"compared: {', '.join(words)}"] if words else []
    if mute:
        parts.append(
            f"not {', '.join(mute)}: no gloo Flight Recorder, and with a GPU the CPU time does not show slowness"
        )
    parts += [f"not {member}: {problem}" for member, problem in sorted(comparison.problems.items())]
    known = {*comparison.pace, *comparison.problems, *mute}
    silent = [member for member in world.places if member not in known]
    if silent and (words or mute):
        parts.append(f"not {', '.join(sorted(silent))}: no step times have arrived")
    return "; ".join(parts) or "no step times have arrived yet: they need a process group and torch's optimizers"
