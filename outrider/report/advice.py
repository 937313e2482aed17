"""What would have helped a job, by arithmetic from its time account and the stages of its recoveries.

Each advice has the seconds that it would have saved at most and how they were computed. One that saves little is left
out: what a user reads here should be worth the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from outrider.report.history import Case
from outrider.report.job import Job
from outrider.report.words import counted, percent, seconds

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
    makers = (_spare, _checkpoint, _hang, _nodes, _data, _saves, _slow)
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
    waited = [each for each in found if each.stages.get("detect", 0.0) >= _limit(each.reason)]
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


def _limit(reason: str) -> float:
    """The limit in seconds that the reason of a hang names, else 0. One that was found earlier did not wait for it."""
    found = LIMIT.search(reason)
    return float(found[1].replace(",", "")) if found else 0.0


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


def _data(job: Job) -> Iterator[Advice]:
    if job.share("data_wait") >= NOTABLE:
        spent = job.each("data_wait")
        yield Advice(
            f"Faster data loading would have saved up to {seconds(spent)}: the members waited for batches for "
            f"{percent(job.share('data_wait'))} of their time. More workers of the DataLoader, or nearer data, help.",
            _account(job, "data_wait"),
            "docs/concepts/time.md",
            spent,
        )


def _saves(job: Job) -> Iterator[Advice]:
    if job.share("checkpoint_stall") >= NOTABLE:
        spent = job.each("checkpoint_stall")
        yield Advice(
            f"Saves in the background would have saved up to {seconds(spent)}: saves held up training for "
            f"{percent(job.share('checkpoint_stall'))} of the members' time.",
            _account(job, "checkpoint_stall"),
            "docs/how-to/memory-checkpoints.md",
            spent,
        )


def _slow(job: Job) -> Iterator[Advice]:
    spent = job.each("slow_member")
    if job.share("slow_member") >= NOTABLE or job.status.stragglers:
        named = "; ".join(each.reason or each.member for each in job.status.stragglers[:3])
        yield Advice(
            f"Without the slow member the job would have saved up to {seconds(spent)}: it held up the others for "
            f"{percent(job.share('slow_member'))} of their time.{f' Slow now: {named}' if named else ''}",
            _account(job, "slow_member"),
            "docs/how-to/stragglers.md",
            spent,
        )
