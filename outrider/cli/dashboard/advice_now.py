"""What a user should do now about a job, in one sentence; nothing if there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outrider.report.faults import EFFECT, Shown
from outrider.report.job import OVER

Status = Mapping[str, Any]


def to_do(status: Status, faults: Sequence[Shown]) -> str:
    """The most urgent thing to do, of those that are known."""
    is_over = status.get("phase") in OVER
    found = (maker(status, faults) for maker in (MAKERS[:1] if is_over else MAKERS))
    return next((sentence for sentence in found if sentence), "")


def _failed(status: Status, faults: Sequence[Shown]) -> str:
    if status.get("phase") != "failed":
        return ""
    last = faults[-1] if faults else None
    errors = [each for each in last.exits if each.error and not each.sentence.endswith(EFFECT)] if last else []
    if last is None or not errors:
        return "Read why it failed below, and start it again once that is mended."
    where = f" at {errors[0].frame}" if errors[0].frame else ""
    return f"Mend {errors[0].error}{where} (fault {last.number}), then start the job again."


def _blocked(status: Status, _faults: Sequence[Shown]) -> str:
    blocked = [each for each in rows(status.get("members")) if each.get("blocked")]
    if not blocked:
        return ""
    more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
    return f"{blocked[0].get('id')}{more} cannot start: {blocked[0]['blocked']}."


def _disk(status: Status, _faults: Sequence[Shown]) -> str:
    saves = status.get("non_atomic_saves")
    member = next(iter(saves), None) if isinstance(saves, Mapping) else None
    return f"Make room on the disk of the checkpoints of {member}: {saves[member]}" if member and saves else ""


def _network(status: Status, _faults: Sequence[Shown]) -> str:
    network = status.get("network")
    down = rows(network.get("down")) if isinstance(network, Mapping) else []
    return f"Look at the network: {down[0].get('reason')}" if down else ""


def _slow(status: Status, _faults: Sequence[Shown]) -> str:
    slow = rows(status.get("stragglers"))
    return f"Look at {slow[0].get('node') or slow[0].get('member')}: {slow[0].get('reason')}" if slow else ""


def _nodes(status: Status, _faults: Sequence[Shown]) -> str:
    nodes = status.get("excluded_nodes")
    if not isinstance(nodes, list) or not nodes:
        return ""
    return f"Look at {', '.join(map(str, nodes[:3]))}: members failed there again and again, and new pods keep off."


def rows(value: object) -> list[Mapping[str, Any]]:
    """The entries of a list in a status that are maps."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


MAKERS: tuple[Callable[[Status, Sequence[Shown]], str], ...] = (_failed, _blocked, _disk, _network, _slow, _nodes)
"""The most urgent first."""
