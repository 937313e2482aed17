"""What stands between the job and its seats. Events go in, and what a seat wants done goes on as it is, or as the
job's.

A seat knows nothing of the others. So the job puts into its Starts what they say of others, counts its pods among those
of the role, writes one status for all, and says in its own words that it begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outrider.master.core import step as core_step
from outrider.master.core.actions import Action, Announce, CreatePod, Deliver, EndJob, SaveStatus, Send
from outrider.master.core.events import Event
from outrider.master.core.hangs import progress_watch
from outrider.master.core.ps import tally, tf_config
from outrider.master.core.ps.state import PsState, Seat
from outrider.master.core.state.job import COMMITTING
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Welcome

OF_THE_JOB = {"JobStarted", "JobSucceeded", "JobFailed", "JobStopped", "MasterStarted"}
"""Said once, by the job."""


def tell(job: PsState, seat: Seat, event: Event) -> None:
    """One event to one seat."""
    catch_up(job, seat)
    _pass_on(job, seat, core_step.step(seat.state, event, job.now))


def let(job: PsState, seat: Seat, make: Callable[[], None]) -> None:
    """A change of a seat for the sake of the others."""
    catch_up(job, seat)
    _pass_on(job, seat, core_step.change(seat.state, make, job.now))


def catch_up(job: PsState, seat: Seat) -> None:
    """What was noted of all seats at once is noted of each before it is looked at."""
    if seat.trains and not seat.removed and seat.no_turns < job.no_turns:
        seat.no_turns = job.no_turns
        progress_watch.note_no_turn(seat.state)


def _pass_on(job: PsState, seat: Seat, actions: list[Action]) -> None:
    tally.note(job, seat)
    for action in actions:
        passed = _passed(job, seat, action)
        if passed is not None:
            job.actions.append(passed)


def _passed(job: PsState, seat: Seat, action: Action) -> Action | None:
    match action:
        case Send(member=member, message=Start() as start):
            return replace(action, message=tf_config.told(job, seat, member, start))
        case Send(message=Welcome() as welcome):
            return replace(action, message=tf_config.welcomed(job, seat, welcome))
        case CreatePod():
            job.members[action.member] = seat.key
            return replace(action, wanted=tf_config.size(job, seat.role), place=seat.index)
        case SaveStatus():
            job.save_wanted = True
            job.save_due = job.save_due or seat.state.stage == COMMITTING
            return None
        case Announce(kind=kind) if kind in OF_THE_JOB:
            return None
        case Announce(member=None):
            return replace(action, member=next(iter(seat.state.members), None))
        case Deliver():
            _collect(job, seat, action)
            return None
        case EndJob():
            return None
    return action


def _collect(job: PsState, seat: Seat, answer: Deliver) -> None:
    """A user's question is answered when all seats have."""
    awaited, collection = job.collections.get(answer.request, (set(), None))
    if collection is None:
        return
    awaited.discard(seat.key)
    collection.bodies.update(answer.bodies)
    collection.missing.update(answer.missing)
    if awaited:
        return
    del job.collections[answer.request]
    bodies, missing = tuple(sorted(collection.bodies.items())), tuple(sorted(collection.missing))
    reason = f"{len(bodies)} of {len(bodies) + len(missing)} members gave their {collection.what}."
    job.actions.append(Deliver(answer.request, bodies, missing, job.generation, reason))
