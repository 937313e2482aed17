"""Where the members of a PS job are reached, and what each is told of it: TF_CONFIG.

The addresses come with the spec and stay: a member that replaces another has its address. The chief is a job of its own
in the cluster, and workers are counted from 0 beside it, as TensorFlow does; an evaluator has a task and is not in the
cluster. Parameter servers are told of all workers that may ever be, so that a late one is no stranger to them; a
worker, which may wait for all that it is told of, only of those that are wanted.
"""

from __future__ import annotations

import json
from dataclasses import replace

from outrider.master.core.ps import tally
from outrider.master.core.ps.state import CHIEF, EVALUATOR, PS, ROLES, Key, PsState, Seat
from outrider.master.core.spec import WORKER, JobSpec
from outrider.wire.ids import MemberId, RankIndex, Role
from outrider.wire.messages.generation import Start
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import Welcome

MOST_NEIGHBOURS = 3
"""TensorFlow's words."""


def keys(spec: JobSpec, workers: int) -> list[Key]:
    """The seats of a job with so many workers."""
    sizes = {PS: len(spec.ps), CHIEF: int(bool(spec.chief)), WORKER: workers, EVALUATOR: int(spec.has_evaluator)}
    return [(role, RankIndex(index)) for role in ROLES for index in range(sizes[role])]


def size(job: PsState, role: Role) -> int:
    """Members that are wanted of a role."""
    return tally.count(job, tally.WANTED, role)


def address(spec: JobSpec, key: Key) -> str:
    role, index = key
    found = {PS: spec.ps, CHIEF: (spec.chief,), WORKER: spec.workers}.get(role, ())
    return found[index] if index < len(found) else ""


def seat_spec(spec: JobSpec, key: Key) -> JobSpec:
    """The job of one seat, which is one process and knows of no other. Parameter servers and evaluators make no steps,
    or seldom, and do not hang for it. What a session restores is on the servers."""
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
    """TF_CONFIG of one member, as the JSON that TensorFlow reads."""
    role, index = key
    shown = spec.workers if role == PS else spec.workers[:workers]
    jobs = {"chief": [spec.chief] if spec.chief else [], "worker": list(shown), "ps": list(spec.ps)}
    cluster = {name: addresses for name, addresses in jobs.items() if addresses}
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


def told(job: PsState, seat: Seat, member: MemberId, message: Start) -> Start:
    """A seat's Start, with what it needs to know of the others."""
    number = member.rpartition("-")[2]
    return replace(
        message,
        tf_config=tf_config(job.spec, job.target, seat.key),
        worker_id=int(number) if number.isdigit() else 0,
        worker_num=size(job, seat.role),
        neighbours=neighbours(job, seat),
    )


def welcomed(job: PsState, seat: Seat, message: Welcome) -> Welcome:
    """The same of a Welcome."""
    return replace(message, neighbours=neighbours(job, seat) if seat.runs is not None else ())


def neighbours(job: PsState, seat: Seat) -> tuple[Neighbour, ...]:
    """The members of the next seats, around the circle of all."""
    members = (each.runs for each in tally.after(job, seat, MOST_NEIGHBOURS))
    return tuple(Neighbour(each.id, each.address, each.probe_port) for each in members if each is not None)
