"""How long a generation may show no progress, and what the job's own past says about that.

Progress is a step that a rank's page did not show before, or another phase. Only the master's own clock measures it:
the ages and durations that a rank claims are measured against nothing, so that a wrong one cannot hide or make a hang.
The most patient phase of any rank counts, because the others wait for that rank:

    step        max(60 s, 10 × the slowest recent step)
    init        max(600 s, 10 × the longest so far): until the first step is over, and while no step's duration is known
    checkpoint  max(600 s, 5 × the longest so far)
    eval        max(600 s, 10 × the longest so far)

A limit that the user gives is the limit, whatever the past was.

Phases that change without a step cannot go on for ever: all limits together are the longest that any job goes without
one. A duration is remembered only where the rank was heard all the while, or a deaf master would grow patient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outrider.master.core.spec import JobSpec
from outrider.master.core.state.hangs import Pace, Seen, Watch
from outrider.wire.ids import Generation, MemberId
from outrider.wire.messages.report import RankProgress

INIT, STEP, CHECKPOINT, EVAL = "init", "step", "checkpoint", "eval"
PHASES = (INIT, STEP, CHECKPOINT, EVAL)
LEAST = {STEP: 60.0, INIT: 600.0, CHECKPOINT: 600.0, EVAL: 600.0}
TIMES = {STEP: 10, INIT: 10, CHECKPOINT: 5, EVAL: 10}
HEARD_THROUGHOUT = 2.5
"""Seconds between two reports of a rank within which nothing can have been missed."""
RECENT = 3600.0
"""Seconds, beside ten times its own length, for which a slow step is recent."""
SHORTEST, KEPT = 1.0, 32
"""Seconds of the shortest step that is remembered, and how many are."""
FARTHEST_STEP = 1 << 62


def begin(generation: Generation, now: float) -> Watch:
    return Watch(generation, now, now, now, now)


# -- what a report shows ------------------------------------------------------------------------------------------
def note(watch: Watch, pace: Pace, member: MemberId, rows: Iterable[RankProgress], now: float) -> bool:
    """True where a rank has made progress. O(the member's own ranks)."""
    watch.heard_at = now
    moved = False
    for row in rows:
        moved = _note_rank(watch, pace, (member, row.local_rank), row, now) or moved
    if moved:
        watch.since, watch.lenient = now, False
    return moved


def _note_rank(watch: Watch, pace: Pace, key: tuple[MemberId, int], row: RankProgress, now: float) -> bool:
    phase = row.phase if row.phase in PHASES else STEP
    step = min(max(row.step, 0), FARTHEST_STEP)
    if phase == STEP and 0 < row.step_seconds <= now - watch.began:  # two steps, between which no report may have come
        pace.knows_steps = True
    seen = watch.ranks.get(key)
    if seen is None:
        watch.ranks[key] = Seen(step, phase, now, now)
        watch.phases[phase] += 1
        return _first_seen(watch, step, phase, now)
    moved = phase != seen.phase
    if phase != INIT and step > seen.step:
        moved = True
        _step(watch, pace, seen, phase, step, now)
    if phase != seen.phase:
        _phase_over(watch, pace, seen, now)
        watch.phases[seen.phase] -= 1
        watch.phases[phase] += 1
        seen.phase, seen.since = phase, now
    seen.step, seen.heard_at = step, now
    return moved


def _first_seen(watch: Watch, step: int, phase: str, now: float) -> bool:
    if phase == INIT or (watch.inherited is not None and step <= watch.inherited[0] and phase == watch.inherited[1]):
        return False
    if step > watch.step:
        watch.step, watch.stepped_at = step, now
    return True


def _step(watch: Watch, pace: Pace, seen: Seen, phase: str, step: int, now: float) -> None:
    if step > watch.step:
        if phase == seen.phase == STEP and watch.step and now - seen.heard_at <= HEARD_THROUGHOUT:
            pace.knows_steps = True
            _remember_step(pace, now, seen.heard_at - watch.since)
        watch.step = step
    watch.stepped_at = now


def _remember_step(pace: Pace, now: float, took: float) -> None:
    """So long no step was seen, from report to report: where each of them shows new steps, that is no time at all."""
    if took < SHORTEST:
        return
    slow = pace.slow_steps
    while slow and slow[-1][1] <= took:
        slow.pop()
    if len(slow) < KEPT:
        slow.append((now, took))


def _phase_over(watch: Watch, pace: Pace, seen: Seen, now: float) -> None:
    if seen.phase == STEP or now - seen.heard_at > HEARD_THROUGHOUT:
        return
    took = now - (watch.began if seen.phase == INIT else seen.since)
    pace.longest[seen.phase] = max(took, pace.longest.get(seen.phase, 0.0))


def note_stall(watch: Watch, lost: float, now: float) -> None:
    """This process was paused: nothing could be heard."""
    watch.since = min(now, watch.since + lost)
    watch.stepped_at = min(now, watch.stepped_at + lost)


# -- limits -------------------------------------------------------------------------------------------------------
def asked(spec: JobSpec, phase: str) -> float | None:
    """The user's own limit."""
    own = {STEP: spec.hang_step, INIT: spec.hang_init, CHECKPOINT: spec.hang_checkpoint, EVAL: spec.hang_eval}
    return own[phase]


def limit(pace: Pace, spec: JobSpec, phase: str, now: float) -> float:
    """Seconds without progress that are too many in this phase."""
    own = asked(spec, phase)
    if own is not None:
        return own
    longest = slowest_step(pace, now) if phase == STEP else pace.longest.get(phase, 0.0)
    return max(LEAST[phase], TIMES[phase] * longest)


def slowest_step(pace: Pace, now: float) -> float:
    """Seconds; 0 where no recent one was slow."""
    slow = pace.slow_steps
    while slow and now - slow[0][0] > RECENT + 10 * slow[0][1]:
        slow.popleft()
    return slow[0][1] if slow else 0.0


def ruling(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> tuple[str, float]:
    """The phase that counts now, and its limit."""
    there = {phase for phase, count in watch.phases.items() if count > 0} or {INIT}
    if STEP in there and not pace.knows_steps:
        there.add(INIT)
    if watch.ending or watch.lenient:
        there.add(EVAL)
    return max(((phase, limit(pace, spec, phase, now)) for phase in sorted(there)), key=lambda found: found[1])


def due(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> float:
    """When it hangs, if nothing more is seen."""
    longest = sum(limit(pace, spec, phase, now) for phase in PHASES)
    return min(watch.since + ruling(watch, pace, spec, now)[1], watch.stepped_at + longest)


def look_again(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> float:
    """The next moment at which it could hang: a limit may become shorter by a change of phase, which is progress."""
    shortest = min(limit(Pace(), spec, phase, now) for phase in PHASES)
    return min(due(watch, pace, spec, now), now + shortest)


# -- for the next master ------------------------------------------------------------------------------------------
def saved_watch(watch: Watch, pace: Pace, spec: JobSpec, now: float, offset: float) -> dict[str, object]:
    return {
        "written": now + offset,
        "began": watch.began + offset,
        "since": watch.since + offset,
        "stepped_at": watch.stepped_at + offset,
        "step": watch.step,
        "phase": ruling(watch, pace, spec, now)[0],
        "ending": watch.ending,
    }


def taken_over(kept: Mapping[str, Any], generation: Generation, now: float, offset: float) -> Watch:
    """The watch of a generation that an earlier master started: what it knew counts, as far as no rank has gone on
    since it was written. Seconds count as that one had measured them until then: its wall clock may be an hour behind
    ours, and the hour would make a hang of a save. So the time without a master is nobody's."""
    watch = begin(generation, now)
    if kept:
        written = float(kept.get("written", now + offset))
        watch.began, watch.since, watch.stepped_at = (
            now - max(0.0, written - float(kept[name])) for name in ("began", "since", "stepped_at")
        )
        watch.step, watch.ending = int(kept["step"]), bool(kept["ending"])
        watch.inherited = (watch.step, str(kept["phase"]))
    return watch
