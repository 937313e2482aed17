"""Which seats there are: at the start, under a new master, and when the user wants more workers or fewer.

Who stays is not disturbed: a new worker has an address that the parameter servers know already, and one too many is
stopped alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outrider.master.core.events import Began, PodsListed, SpecChanged, StopAsked
from outrider.master.core.generation import stages
from outrider.master.core.ps import stalled_workers, tally, tf_config
from outrider.master.core.ps import status_batch as ps_status_batch
from outrider.master.core.ps.state import Key, PsState, Seat
from outrider.master.core.ps.task_adapter import catch_up, tell
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.membership import Membership
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId


def begin(job: PsState, event: Began) -> None:
    """Every seat begins, with what an earlier master has left of it."""
    kept = ps_status_batch.left(event.saved)
    job.term, job.spec, job.unix_offset = event.term, event.spec, event.unix_time - job.now
    job.target = int(kept.get("target", event.spec.replicas))
    job.began_at = float(kept.get("began_at", event.unix_time)) - job.unix_offset
    job.restarts.since = job.now
    job.version = int(kept.get("version", 0))
    for role, number in kept.get("next_id", {}).items():
        job.next_id[role] = int(number)
    for key in tf_config.keys(event.spec, job.target):
        _add(job, key, event, kept)
    if kept.get("ended"):
        job.phase, job.exit_code, job.message = kept["ended"]
        stages.move(job, "job over")
        tell_all_to_stop(job, job.message)
    elif kept:
        text = f"A new master (term {job.term}) waits for the members that an earlier one started."
        job.announce("MasterStarted", text)
    else:
        job.announce("JobStarted", f"Job {event.spec.name} begins; it wants {_wanted(job)}.")
        _tell_of_tf_config(job)


def _wanted(job: PsState) -> str:
    """`2 ps, 1 chief and 2 workers`."""
    counts: dict[str, int] = {}
    for seat in job.seats.values():
        counts[seat.role] = counts.get(seat.role, 0) + 1
    parts = [f"{number} ps" if role == "ps" else counted(number, role) for role, number in counts.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _tell_of_tf_config(job: PsState) -> None:
    if job.spec.tf_config_from:
        text = f"TF_CONFIG is set in {job.spec.tf_config_from}: it is left as it is, and members do not get their own."
        job.announce("UserTfConfigFound", text, warning=True)


def _add(job: PsState, key: Key, event: Began, kept: dict[str, Any]) -> Seat:
    seat = job.seats[key] = Seat(*key, State(next_order=job.next_order, membership=Membership(crowd=job.crowd)))
    left = kept.get("seats", {}).get(seat.name)
    for member in (left or {}).get("members", {}):
        job.members[MemberId(member)] = key
    spec = tf_config.seat_spec(event.spec, key)
    tell(job, seat, replace(event, spec=spec, saved={"saved": left} if left else None))
    _share(job, seat, is_first=len(job.seats) == 1)
    if done := kept.get("done", {}).get(seat.name):
        seat.state.phase, seat.state.exit_code, seat.state.message = done
        stages.move(seat.state, "was over before")
        tally.note(job, seat)
    return seat


def _share(job: PsState, seat: Seat, *, is_first: bool) -> None:
    """What is the job's, and not the seat's alone."""
    state = seat.state
    for role, number in state.placement.next_id.items():
        job.next_id[role] = max(job.next_id.get(role, 0), number)
    state.placement.next_id = job.next_id
    if is_first:
        job.restarts.used, job.restarts.since = state.faults.restarts.used, state.faults.restarts.since
    state.faults.restarts = job.restarts


# -- another size -------------------------------------------------------------------------------------------------
def scale(job: PsState, workers: int) -> None:
    """The user wants so many workers."""
    spec = job.spec
    if job.is_over or not spec.min_members <= workers <= spec.max_members:
        range_ = f"{spec.min_members} to {spec.max_members}"
        text = f"{counted(workers, 'worker')} cannot be had: job {spec.name} runs with {range_}."
        job.announce("ScaleRejected", text, warning=True)
    elif workers == job.target:
        job.announce("ScaleRequested", f"{_are(workers)} wanted already.")
    else:
        job.announce("ScaleRequested", f"{_are(workers)} wanted instead of {job.target}.")
        job.target = workers
        job.save_wanted = True
        _fit(job)


def _are(workers: int) -> str:
    return f"{counted(workers, 'worker')} {'is' if workers == 1 else 'are'}"


def _fit(job: PsState) -> None:
    wanted = tf_config.keys(job.spec, job.target)
    for key, seat in list(job.seats.items()):
        if key not in wanted and not seat.removed:
            catch_up(job, seat)
            seat.removed = True
            tell(job, seat, StopAsked(f"the job has only {counted(job.target, WORKER)} now"))
    for key in wanted:
        if key not in job.seats:
            began = Began(job.term, job.spec, None, job.unix_offset + job.now)
            seat = _add(job, key, began, {})
            if job.listed:
                tell(job, seat, PodsListed(()))
    tally.sort(job)
    stalled_workers.recount(job)


def edited(job: PsState, event: SpecChanged) -> None:
    """The user has edited the job."""
    job.spec, job.suspended = event.spec, event.suspended
    for key, seat in list(job.seats.items()):
        tell(job, seat, replace(event, spec=tf_config.seat_spec(event.spec, key)))
    if event.spec.replicas != job.target:
        scale(job, event.spec.replicas)


def tell_all_to_stop(job: PsState, why: str) -> None:
    for seat in list(job.seats.values()):
        tell(job, seat, StopAsked(why))
