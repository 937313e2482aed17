"""What would have helped a job, by arithmetic from its time account and the stages of its recoveries.

Each advice has the seconds that it would have saved at most and how they were computed. One that saves little is left
out: what a user reads here should be worth the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from outrider.report.faults import EFFECT
from outrider.report.history import Case
from outrider.report.job import OVER, Job
from outrider.report.words import counted, percent, seconds, utc

LEAST_SECONDS, LEAST_SHARE = 1.0, 0.001
"""The least that an advice saves: seconds, and as a share of the job's time."""
NOTABLE: Final = 0.03
"""The share of the members' time above which waiting for data, saves or a slow member is worth an advice."""
LIMIT: Final = re.compile(r"limit ([\d,.]+) s\)")
SHOWN: Final = 5
"""The most summands that are shown."""


@dataclass(frozen=True, slots=True)
class Advice:
    what: str
    """The sentence with the number."""
    how: str
    """How it was computed."""
    page: str
    """The page of the documentation that says how to do it."""
    saves: float
    """Seconds of the job, at most."""


def advice(job: Job) -> list[Advice]:
    """What would have helped, the greatest first."""
    makers = (_own_error, _spare, _checkpoint, _hang, _nodes, _held_up, _slow)
    found = [each for maker in makers for each in maker(job)]
    least = max(LEAST_SECONDS, LEAST_SHARE * job.duration)
    return sorted((each for each in found if each.saves >= least), key=lambda each: -each.saves)


def _stage(job: Job, stage: str, kind: str = "") -> list[float]:
    """The seconds of a stage of every recovery that had it."""
    faults = [case.fault for case in job.cases if kind in ("", case.fault.kind)]
    return [fault.stages[stage] for fault in faults if fault.stages.get(stage, 0.0) > 0.0]


def _sum(parts: Iterable[float]) -> str:
    """`7.1 s + 4.2 s = 11 s`, or of many: `the sum of 20, the greatest 12 s`."""
    listed = sorted(parts, reverse=True)
    if len(listed) > SHOWN:
        return f"the sum of {len(listed)} of them, the greatest {seconds(listed[0])}, is {seconds(sum(listed))}"
    return " + ".join(map(seconds, listed)) + (f" = {seconds(sum(listed))}" if len(listed) > 1 else "")


def _account(job: Job, cause: str) -> str:
    """How a share of the account was computed."""
    spent = job.account.get(cause, 0.0)
    return f"{cause} / the time of all members: {seconds(spent)} / {seconds(job.wall)} = {percent(job.share(cause))}"


def _own_error(job: Job) -> Iterator[Advice]:
    """The job failed on an error of its script that restarts had not removed."""
    errors = [(case.fault, _error(case)) for case in job.cases]
    last = errors[-1][1] if errors and job.status.phase == "failed" else ""
    if not last or job.until is None:
        return
    alike = [fault for fault, error in errors if error == last]
    after = job.until - alike[0].at
    yield Advice(
        f"Without restarts the job would have failed {seconds(after)} sooner: it ended with {last}, which occurred "
        f"{counted(len(alike), 'time')}. Restarts do not mend an error of the script; a rule can fail the job at once.",
        f"from the first time, {utc(alike[0].at)}, to the end: {seconds(after)}",
        "docs/how-to/rules.md",
        after,
    )


def _error(case: Case) -> str:
    """`ValueError: no such file (train.py:12 main)` of the rank that caused the fault, else nothing."""
    exits = (each for each in case.fault.evidence if each.what == "exit" and not each.sentence.endswith(EFFECT))
    first = next((each for each in exits if each.error), None)
    return "" if first is None else f"{first.error} ({first.frame})" if first.frame else first.error


def _spare(job: Job) -> Iterator[Advice]:
    waits = _stage(job, "wait")
    if waits:
        yield Advice(
            f"A spare would have saved up to {seconds(sum(waits))}: after {counted(len(waits), 'fault')} the job "
            "waited for members, and a spare takes over at once.",
            f"stage wait: {_sum(waits)}",
            "docs/how-to/preemption.md",
            sum(waits),
        )


def _checkpoint(job: Job) -> Iterator[Advice]:
    repeats = _stage(job, "new_step")
    repeated = sum(repeats) or job.each("repeated_steps")
    stall = job.each("checkpoint_stall")
    how = f"stage new_step: {_sum(repeats)}" if repeats else _account(job, "repeated_steps")
    if repeats and stall:
        how += f"; saves held up each member for {seconds(stall)} ({_account(job, 'checkpoint_stall')} of the time)"
    saves = [event.at for event in job.events if event.kind == "CheckpointSaved"]
    often = f" It saved about every {seconds((saves[-1] - saves[0]) / (len(saves) - 1))}." if len(saves) > 1 else ""
    gain = repeated / 2 - stall
    if not saves and not stall and job.status.replicated_step is None and not _stage(job, "load"):
        yield Advice(
            f"Checkpoints would have saved up to {seconds(repeated)}, the time in which steps were repeated: no save "
            "of the script was seen.",
            how,
            "docs/concepts/checkpoints.md",
            repeated,
        )
        return
    if job.status.replicated_step is None:
        yield Advice(
            f"Checkpoints in memory would have saved up to {seconds(repeated)}, the time in which steps were repeated: "
            f"they are cheap enough for every few steps.{often}",
            how,
            "docs/how-to/memory-checkpoints.md",
            repeated,
        )
    if gain > 0:
        cost = f", which costs {seconds(stall)} more for saves" if stall >= 0.1 else ""
        yield Advice(
            f"Saving twice as often would have saved about {seconds(gain)}: half of the {seconds(repeated)} of "
            f"repeated steps{cost}.{often}",
            f"{how}; {seconds(repeated)} / 2 − {seconds(stall)} = {seconds(gain)}",
            "docs/concepts/checkpoints.md",
            gain,
        )


def _hang(job: Job) -> Iterator[Advice]:
    found = [case.fault for case in job.cases if case.fault.kind == "HangDetected"]
    waited = [each for each in found if _waited(each.reason, each.stages.get("detect"))]
    if found and not waited:
        return
    hangs = [each.stages["detect"] for each in waited if each.stages.get("detect")]
    hung = sum(hangs) or job.each("hang")
    if hung:
        how = f"stage detect of hangs: {_sum(hangs)}" if hangs else _account(job, "hang")
        step = job.each("productive") / job.status.step if job.status.step > 0 else 0.0
        beside = f" A step takes about {seconds(step)}." if step else ""
        yield Advice(
            f"Half the hang limit would have saved about {seconds(hung / 2)}: hangs were noticed after {seconds(hung)} "
            f"in all.{beside}",
            f"{how}; {seconds(hung)} / 2 = {seconds(hung / 2)}",
            "docs/how-to/hangs.md",
            hung / 2,
        )


def _waited(reason: str, detect: float | None) -> bool:
    """Whether a hang was found only when its limit, which the reason names, was over."""
    found = LIMIT.search(reason)
    return found is not None and (detect is None or detect >= float(found[1].replace(",", "")))


def _nodes(job: Job) -> Iterator[Advice]:
    by_node: dict[str, list[Case]] = {}
    for case in job.cases:
        if case.fault.node:
            by_node.setdefault(case.fault.node, []).append(case)
    nodes = {holder.node for holder in job.timeline.holders if holder.node} | {each.node for each in job.status.members}
    for node, cases in by_node.items():
        lost = [case.fault.seconds_lost or 0.0 for case in cases]
        if len(cases) >= 2 and nodes - {node, ""}:
            kinds = ", ".join(dict.fromkeys(case.fault.kind for case in cases))
            barred = " New pods keep off it already." if node in job.status.excluded_nodes else ""
            yield Advice(
                f"Another node than {node} would have saved up to {seconds(sum(lost))}: {len(cases)} of "
                f"{counted(len(job.cases), 'fault')} were on it ({kinds}).{barred}",
                f"seconds lost by the faults on {node}: {_sum(lost)}",
                "docs/how-to/node-check.md",
                sum(lost),
            )


HELD_UP: Final = (
    ("data_wait", "Faster data loading", "the members waited for batches", "docs/concepts/time.md",
     " More workers of the DataLoader, or nearer data, help."),
    ("checkpoint_stall", "Saves in the background", "saves held up training", "docs/how-to/memory-checkpoints.md", ""),
)  # fmt: skip
"""Causes whose share alone is worth an advice: what helps, what happened, the page, and more words."""


def _held_up(job: Job) -> Iterator[Advice]:
    for cause, help_, happened, page, more in HELD_UP:
        if job.share(cause) >= NOTABLE:
            yield Advice(
                f"{help_} would have saved up to {seconds(job.each(cause))}: {happened} for "
                f"{percent(job.share(cause))} of the members' time.{more}",
                _account(job, cause),
                page,
                job.each(cause),
            )


def _slow(job: Job) -> Iterator[Advice]:
    spent = job.each("slow_member")
    if job.share("slow_member") >= NOTABLE or job.status.stragglers:
        named = "; ".join(each.reason or each.member for each in job.status.stragglers[:3])
        when = "at its end" if job.status.phase in OVER else "now"
        yield Advice(
            f"Without the slow member the job would have saved up to {seconds(spent)}: it held up the others for "
            f"{percent(job.share('slow_member'))} of their time.{f' Slow {when}: {named}' if named else ''}",
            _account(job, "slow_member"),
            "docs/how-to/stragglers.md",
            spent,
        )
