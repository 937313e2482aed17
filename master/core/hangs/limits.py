"""Limits on how long a generation may show no progress, which grow with the job's own past.

Progress is a step that a rank's page did not show before, or another phase. Only the master's own clock measures it:
the ages and durations that a rank claims are not trusted, so a wrong one can neither hide nor cause a hang. Of the
phases that ranks are in, the one with the longest limit counts, because the others wait for that rank:

    step        max(60 s, 10 × the slowest recent step)
    init        max(600 s, 10 × the longest so far): until the first step is over, and while no step's duration is known
    checkpoint  max(600 s, 5 × the longest so far)
    eval        max(600 s, 10 × the longest so far)

A limit that the user sets applies as it is, whatever the past was.

Phases that change without a step cannot last for ever: no job may go without a step for longer than the sum of all
limits. A duration is remembered only if the rank was heard all the time; otherwise a master that hears nothing would
extend its limits.
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
"""Seconds between two reports of a rank: if it is not more, the master has missed none."""
RECENT = 3600.0
"""Seconds for which a slow step counts as recent, in addition to ten times its own duration."""
SHORTEST, KEPT = 1.0, 32
"""The shortest step that is remembered, in seconds, and how many steps are remembered."""
FARTHEST_STEP = 1 << 62


def begin(generation: Generation, now: float) -> Watch:
    return Watch(generation, now, now, now, now)


# -- what a report shows ------------------------------------------------------------------------------------------
def note(watch: Watch, pace: Pace, member: MemberId, rows: Iterable[RankProgress], now: float) -> bool:
    """Notes what a report shows. True if a rank has made progress. O(the member's own ranks)."""
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
    if phase == STEP and 0 < row.step_seconds <= now - watch.began:  # two steps, maybe with no report between them
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
    """Remembers the time from report to report without a new step, which is 0 if every report shows new steps."""
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
    """The master itself was paused and heard nothing, so the lost time does not count."""
    watch.since = min(now, watch.since + lost)
    watch.stepped_at = min(now, watch.stepped_at + lost)


# -- limits -------------------------------------------------------------------------------------------------------
def user_limit(spec: JobSpec, phase: str) -> float | None:
    """The limit that the user has set for this phase, if any."""
    own = {STEP: spec.hang_step, INIT: spec.hang_init, CHECKPOINT: spec.hang_checkpoint, EVAL: spec.hang_eval}
    return own[phase]


def limit(pace: Pace, spec: JobSpec, phase: str, now: float) -> float:
    """Seconds without progress after which this phase counts as hung."""
    own = user_limit(spec, phase)
    if own is not None:
        return own
    longest = slowest_step(pace, now) if phase == STEP else pace.longest.get(phase, 0.0)
    return max(LEAST[phase], TIMES[phase] * longest)


def slowest_step(pace: Pace, now: float) -> float:
    """Seconds of the slowest recent step; 0 if none was slow."""
    slow = pace.slow_steps
    while slow and now - slow[0][0] > RECENT + 10 * slow[0][1]:
        slow.popleft()
    return slow[0][1] if slow else 0.0


def ruling(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> tuple[str, float]:
    """The phase with the longest limit now, and that limit."""
    there = {phase for phase, count in watch.phases.items() if count > 0} or {INIT}
    if STEP in there and not pace.knows_steps:
        there.add(INIT)
    if watch.ending or watch.lenient:
        there.add(EVAL)
    return max(((phase, limit(pace, spec, phase, now)) for phase in sorted(there)), key=lambda found: found[1])


def due(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> float:
    """When the generation counts as hung without further progress."""
    longest = sum(limit(pace, spec, phase, now) for phase in PHASES)
    return min(watch.since + ruling(watch, pace, spec, now)[1], watch.stepped_at + longest)


def look_again(watch: Watch, pace: Pace, spec: JobSpec, now: float) -> float:
    """The earliest time of a hang. A change of phase is progress, but may shorten the limit."""
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


def taken_over(saved: Mapping[str, Any], generation: Generation, now: float, offset: float) -> Watch:
    """The watch of a generation that an earlier master started. What that master saved counts unless a rank has made
    progress since. Its durations end at the moment of the save: its wall clock may be an hour behind ours, and that
    hour would look like a hang. So the time without a master does not count."""
    watch = begin(generation, now)
    if saved:
        written = float(saved.get("written", now + offset))
        watch.began, watch.since, watch.stepped_at = (
            now - max(0.0, written - float(saved[name])) for name in ("began", "since", "stepped_at")
        )
        watch.step, watch.ending = int(saved["step"]), bool(saved["ending"])
        watch.inherited = (watch.step, str(saved["phase"]))
    return watch
