"""Builds each member's TF_CONFIG: the addresses of the cluster, and the member's own task.

The addresses come with the spec and stay: a replacement has the address of the member before it. The chief is a job of
its own in the cluster, and workers are counted from 0 beside it, as in TensorFlow; an evaluator has a task but is not
in the cluster. The TF_CONFIG of parameter servers has all workers that may ever exist, so that they know one that is
added later. That of the others has only the requested workers, because a worker may wait for all that it knows.
"""

from __future__ import annotations

import json
from dataclasses import replace

from outrider.master.core.ps import tally
from outrider.master.core.ps.state import CHIEF, EVALUATOR, PS, ROLES, Key, PsState, Task
from outrider.master.core.spec import WORKER, JobSpec
from outrider.wire.ids import MemberId, RankIndex, Role
from outrider.wire.messages.generation import Start
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import Welcome

MOST_NEIGHBOURS = 3
"""The most neighbours that a Start or a Welcome names."""


def keys(spec: JobSpec, workers: int) -> list[Key]:
    """The tasks of a job with so many workers."""
    sizes = {PS: len(spec.ps), CHIEF: int(bool(spec.chief)), WORKER: workers, EVALUATOR: int(spec.has_evaluator)}
    return [(role, RankIndex(index)) for role in ROLES for index in range(sizes[role])]


def size(job: PsState, role: Role) -> int:
    """The desired number of members of a role."""
    return tally.count(job, tally.WANTED, role)


def address(spec: JobSpec, key: Key) -> str:
    role, index = key
    found = {PS: spec.ps, CHIEF: (spec.chief,), WORKER: spec.workers}.get(role, ())
    return found[index] if index < len(found) else ""


def task_spec(spec: JobSpec, key: Key) -> JobSpec:
    """The spec of the one-member job of a task, which knows no other task.

    Hang detection is off for parameter servers and evaluators, which make no steps, or only seldom. Resuming is not
    watched, because a session restores its variables from the servers.
    """
    role, index = key
    resources = spec.ps_resources[index] if role == PS and index < len(spec.ps_resources) else ""
    limits = next((each._asdict() for each in spec.limits if each.role == role), {})
    return replace(
        spec,
        **limits | {"role": role, "limits": ()},
        resources=resources,
        own_address=address(spec, key),
        min_members=1,
        max_members=1,
        replicas=1,
        nproc=1,
        node_unit=1,
        spares=0,
        first_index=index,
        has_rendezvous=False,
        names_ranks=False,
        holds_all_ranks=False,
        counts_generations_alone=True,
        has_addresses=True,
        watches_resume=False,
        counts_logged_steps=True,
        hang_detection=spec.hang_detection and role in (CHIEF, WORKER),
        node_check=False,
        exclude_stragglers=False,
        elastic_data=False,
        keep_global_batch=False,
        require_resume=False,
        scaling="",
        metrics_pattern=spec.metrics_pattern if role in (CHIEF, WORKER) else "",
        remarks=spec.remarks if key == (WORKER, 0) else (),
    )


def tf_config(spec: JobSpec, workers: int, key: Key) -> str:
    """The TF_CONFIG of one task, as the JSON that TensorFlow reads."""
    role, index = key
    shown = spec.workers if role == PS else spec.workers[:workers]
    jobs = {"chief": [spec.chief] if spec.chief else [], "worker": list(shown), "ps": list(spec.ps)}
    cluster = {name: addresses for name, addresses in jobs.items() if addresses}
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


def completed(job: PsState, task: Task, member: MemberId, message: Start) -> Start:
    """The Start of a task, completed with what it needs to know about the others."""
    number = member.rpartition("-")[2]
    return replace(
        message,
        tf_config=tf_config(job.spec, job.target, task.key),
        worker_id=int(number) if number.isdigit() else 0,
        worker_num=size(job, task.role),
        neighbours=neighbours(job, task),
    )


def welcomed(job: PsState, task: Task, message: Welcome) -> Welcome:
    """The Welcome of a task's member, completed with its neighbours."""
    return replace(message, neighbours=neighbours(job, task) if task.runs is not None else ())


def neighbours(job: PsState, task: Task) -> tuple[Neighbour, ...]:
    """The members of the next tasks in the ring."""
    members = (each.runs for each in tally.after(job, task, MOST_NEIGHBOURS))
    return tuple(Neighbour(each.id, each.address, each.probe_port) for each in members if each is not None)
