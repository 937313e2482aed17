"""The first sentences of a report: how the job ended, what it made, what its time was spent on."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.report.job import OVER, Job
from outrider.report.words import CAUSES, PRODUCTIVE, counted, percent, seconds

STALE = 120.0
"""Seconds after which a history that is not written any more gets a sentence."""


def sentences(job: Job, now: float) -> list[str]:
    return [each for each in (*_end(job), *_steps(job), *_time(job), *_faults(job), *_age(job, now)) if each]


def _end(job: Job) -> Iterator[str]:
    status = job.status
    took = f" after {seconds(job.duration)}" if job.duration else ""
    how = {
        "succeeded": f"succeeded{took}",
        "failed": f"failed{took}",
        "stopped": f"was stopped{took}",
        "running": f"is running, {seconds(job.duration)} after it began" if job.duration else "is running",
        "restarting": "is restarting",
        "pending": "has not formed a generation yet",
        "suspended": "is suspended",
    }.get(status.phase, f"has the phase {status.phase}" if status.phase else "has no phase in its status")
    code = "" if status.exit_code is None else f", with exit code {status.exit_code}"
    yield f"{status.job or 'The job'} {how}{code}."
    if status.message:
        yield f"Its last message: {status.message}"


def _steps(job: Job) -> Iterator[str]:
    status = job.status
    if status.step <= 0 and job.account.get(PRODUCTIVE, 0.0) <= 0:
        yield "It never trained: no step was made."
        return
    about = "about " if status.step_estimated else ""
    again = f" and repeated {status.steps_repeated:,}" if status.steps_repeated > 0 else ""
    near = round(job.members)
    is_whole = abs(job.members - near) <= 0.05 * near
    members = f" with {counted(near, 'member') if is_whole else f'{job.members:.1f} members in the mean'}"
    members = members if job.members else ""
    yield (
        f"It made {about}{counted(status.step, 'step')}{again}, in {counted(max(0, status.restarts) + 1, 'generation')}"
        f"{members}."
    )
    if status.step == 1:
        yield "Only one step was made, so the shares of time say little."


def _time(job: Job) -> Iterator[str]:
    if not job.wall:
        if job.status.goodput is not None:
            yield f"New steps took {percent(job.status.goodput)} of its time (goodput)."
        return
    made = job.account.get(PRODUCTIVE, 0.0)
    yield f"New steps took {percent(made / job.wall)} of the {seconds(job.wall)} of all members (goodput)."
    others = sorted(
        ((each, name) for name, each in job.account.items() if name != PRODUCTIVE and each > 0), reverse=True
    )
    if others:
        listed = [f"{name} {percent(each / job.wall)} ({CAUSES.get(name, 'not known')})" for each, name in others[:3]]
        yield f"The greatest rest: {'; '.join(listed)}."


def _faults(job: Job) -> Iterator[str]:
    if not job.cases:
        yield "It had no fault."
        return
    known = [case.fault.seconds_lost for case in job.cases if case.fault.seconds_lost is not None]
    lost = f" that cost {seconds(sum(known))}" if known else ""
    share = f" ({percent(sum(known) / job.duration)} of its time)" if known and job.duration else ""
    missing = len(job.cases) - len(known)
    which = f"{missing} of them" if known else "it" if missing == 1 else "any of them"
    since = f" No new step is known after {which}." if missing else ""
    yield f"It had {counted(len(job.cases), 'fault')}{lost}{share}.{since}"


def _age(job: Job, now: float) -> Iterator[str]:
    age = now - (job.timeline.began + job.timeline.end / 10)
    if job.timeline.rows and job.status.phase not in OVER and age > STALE:
        yield (
            f"The timeline ends {seconds(age)} before this report was made: the master writes the history "
            "10 s after something has happened, else every 10 minutes."
        )
