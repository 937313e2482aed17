"""Combines the answers of all members into what is known about each rank of a generation.

The answers are parsed in `hangs.evidence_reader`. A rank is identified by its member's place in the generation and its
local rank, whatever rank it reports for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from outrider.master.core.hangs.evidence_reader import short
from outrider.master.core.state.generation import Place
from outrider.master.core.state.hangs import ENDED, STOPPED, STUCK, TRACED, RankEvidence, Row, Rows
from outrider.wire.ids import MemberId

NOTHING = Row("", "", None, ())


def read(
    places: Iterable[Place], done: set[MemberId], collectives: Mapping[MemberId, Rows], stacks: Mapping[MemberId, Rows]
) -> list[RankEvidence]:
    """The evidence in the order of ranks. A rank that is missing in its member's answer has ended."""
    found = []
    for place in places:
        one, other = collectives.get(place.member) or {}, stacks.get(place.member) or {}
        named = {*one, *other}
        for local_rank in range(place.nproc):
            has_ended = place.member in done or (bool(named) and local_rank not in named)
            rows = (one.get(local_rank, NOTHING), other.get(local_rank, NOTHING))
            found.append(_of_rank(place, local_rank, *rows, has_ended=has_ended))
    return sorted(found, key=lambda each: each.rank)


def _of_rank(place: Place, local_rank: int, one: Row, other: Row, *, has_ended: bool) -> RankEvidence:
    """`one` is the row with the collectives of the rank, `other` the row with its stack."""
    rank = place.first_rank + local_rank
    if has_ended:
        return RankEvidence(rank, place.member, ENDED)
    process = one.process or other.process
    return RankEvidence(
        rank,
        place.member,
        process if process in (STOPPED, TRACED, STUCK) else "",
        other.phase or one.phase,
        one.calls is not None,
        one.calls or (),
        other.stack,
        one.used,
        one.frames,
        one.has_left,
    )


NOT_THE_SCRIPTS = ("/site-packages/", "/dist-packages/", "<frozen", "/training_hooks/", "<string>")
LIBRARY = re.compile(r"/lib(64)?/python\d[.\d]*/")


def place(stack: tuple[str, ...]) -> str:
    """The deepest frame of the user's own code; empty if there is none."""
    for frame in stack:
        if not any(part in frame for part in NOT_THE_SCRIPTS) and not LIBRARY.search(frame):
            return short(frame)
    return ""


def waits_for_others(stack: tuple[str, ...]) -> bool:
    """Whether a stack is in a call of torch.distributed or in a backward pass (DDP waits for gradients there)."""
    return any("/torch/distributed/" in frame or frame.endswith(" _engine_run_backward") for frame in stack)


def is_meeting(stack: tuple[str, ...]) -> bool:
    """Whether a stack is in the rendezvous, before there is a process group."""
    return any(frame.endswith((" init_process_group", " _env_rendezvous_handler")) for frame in stack)
