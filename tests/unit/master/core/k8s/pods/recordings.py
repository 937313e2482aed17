"""Plays what a cluster showed through the real cores: pods' documents and signals at their times.

A recording (`recorded/README.md`) holds the outside: documents of pods, SIGTERM to containers, ends of containers. What
Outrider does about it is done anew: the master's core is told what `pods` reads in the documents, each sidecar's core
what comes from signals and hooks, and the two speak with each other. Of an ElasticJob's pods those are played that this
master makes, from the moment on at which it does so, and without the deletions that the recorded master asked for.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from outrider.master.core import actions as orders
from outrider.master.core import events as seen
from outrider.master.core import job_kinds
from outrider.master.core.k8s.elasticjob import spec as elasticjob_spec
from outrider.master.core.k8s.owners import completion as owners_completion
from outrider.master.core.k8s.owners import resize as owners_resize
from outrider.master.core.k8s.pods import observe
from outrider.master.core.k8s.values import identity
from outrider.master.core.k8s.values.names import RANK_INDEX, SIDECAR_CONTAINER, Document
from outrider.master.core.state.job import State
from outrider.master.core.step import check, next_deadline, step
from outrider.sidecar.core import actions as wanted
from outrider.sidecar.core import events as told
from outrider.sidecar.core import step as sidecar_core
from outrider.sidecar.core.state import State as SidecarState
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.report import RankProgress, Report

ORDINARY = "v1.20"
"""A Kubernetes without native sidecars."""
FOLDER = Path(__file__).parents[1] / "data/recorded"
BRIEF = 0.005
"""Seconds that a message, or the hooks, take."""
OWNER_IS_READ = 1.0
"""Seconds after a change at which the master has read the owner at the latest (`master/kubernetes/owner.py`)."""
_PID, _CODE = re.compile(r"\(pid (\d+)\)"), re.compile(r"exit code (\d+)")
Line = dict[str, Any]


def lines_of(version: str, name: str) -> Iterator[Line]:
    """Pods' documents whole again."""
    kept: dict[str, Document] = defaultdict(dict)
    for text in (FOLDER / version / f"{name}.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line.get("object", {}).get("kind") == "Pod":
            pod = line["object"]
            before = kept[pod["metadata"]["uid"]]
            for place, key in (
                (pod, "spec"),
                *((pod["metadata"], k) for k in ("labels", "annotations", "ownerReferences")),
            ):
                before[key] = place.setdefault(key, before.get(key, {}))
            line["object"] = deepcopy(pod)
        yield line


@dataclass
class Member:
    """A pod, and the sidecar in it."""

    name: str
    lines: list[Line]
    uid: str = ""
    member: MemberId | None = None
    role: str = "worker"
    rank_index: RankIndex | None = None
    grace: float = 30.0
    state: SidecarState = field(default_factory=SidecarState)
    trainer: int = 0
    ended: bool = False
    code: int | None = None
    """What its sidecar has ended with."""
    over_at: float = 0.0

    @property
    def is_over(self) -> bool:
        """Its sidecar is."""
        return self.state.over

    @property
    def has_work(self) -> bool:
        """It was told to start a generation."""
        return self.state.work is not None

    @property
    def generation(self) -> Generation:
        return self.state.generation


class Recording:
    """`deleted`: pods that somebody else than Outrider deletes; all are where the job is another owner's."""

    def __init__(
        self,
        version: str,
        name: str,
        deleted: tuple[str, ...] = (),
        *,
        is_native: bool | None = None,
        lines: Sequence[Line] = (),
    ) -> None:
        """`lines`: instead of a file's."""
        self.is_native = version != ORDINARY if is_native is None else is_native
        self.deleted = deleted
        lines = lines or list(lines_of(version, name))
        first = next(line["elasticjob"] for line in lines if "elasticjob" in line)
        metadata = {"name": first["name"], "namespace": name, "uid": "job", "generation": 1}
        self.job: Document = {"metadata": metadata, "spec": first["spec"]}
        self.is_adopted = bool(first["spec"].get("adopts"))
        self.end = next((line["at"] for line in lines if str(line.get("note")).startswith(("kubectl delete elastic",
                        "kubectl delete job"))), lines[-1]["at"])  # fmt: skip
        self.now, self.actions, self.made = 0.0, list[orders.Action](), list[str]()
        self.made_at: dict[str, float] = {}
        self._order, self._queue = count(), list[tuple[float, int, Callable[[], None]]]()
        self.members: dict[str, Member] = {}
        for line in lines:
            pod = line.get("pod") or (line["object"]["metadata"]["name"] if _is_pod(line) else "")
            if line.get("object", {}).get("kind") == "Job":
                self._after(line["at"] + OWNER_IS_READ, lambda owner=line["object"]: self._owner_read(owner))  # type: ignore[misc]
            if pod:
                self.members.setdefault(pod, Member(pod, [])).lines.append(line)
        self.state = State()
        self.spec = elasticjob_spec.spec_of(elasticjob_spec.with_defaults(self.job))
        self._tell(seen.Began(1, self.spec, None, 1_700_000_000.0))
        self._tell(seen.PodsListed(()))
        for member in self.members.values() if self.is_adopted else ():
            self._appears(member, None)

    # -- looking ------------------------------------------------------------------------------------------------------
    def said(self, *kinds: str) -> list[str]:
        """The reasons of announcements of these kinds."""
        return [a.reason for a in self.actions if isinstance(a, orders.Announce) and a.kind in kinds]

    def kinds(self) -> list[str]:
        return [a.kind for a in self.actions if isinstance(a, orders.Announce)]

    def removed(self) -> list[str]:
        return [a.member for a in self.actions if isinstance(a, orders.DeletePod)]

    def made_with(self, member: str) -> orders.CreatePod:
        return next(a for a in self.actions if isinstance(a, orders.CreatePod) and a.member == member)

    def status(self) -> dict[str, Any]:
        """The status document."""
        return job_kinds.document(self.state, self.now)

    def restarts_used(self) -> int:
        return self.state.faults.restarts.used

    # -- driving ------------------------------------------------------------------------------------------------------
    def play(self, until: float | None = None) -> Recording:
        """To the moment at which whoever recorded took the job away, or another one."""
        end = self.end if until is None else until
        while True:
            dues = [moment for moment, _ in self._deadlines()]
            due = min([*dues, *([self._queue[0][0]] if self._queue else [])], default=end)
            if due >= end:
                return self
            self.now = max(self.now, due)
            if self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
                continue
            for moment, wake in self._deadlines():
                if moment <= self.now:
                    wake()

    def _deadlines(self) -> list[tuple[float, Callable[[], None]]]:
        found = [(next_deadline(self.state), lambda: self._tell(seen.Woke()))]
        for each in self.members.values():
            found.append((sidecar_core.next_deadline(each.state), lambda each=each: self._wake(each)))  # type: ignore[misc]
        return [(moment, wake) for moment, wake in found if moment is not None]

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), do))

    # -- the master ---------------------------------------------------------------------------------------------------
    def _tell(self, event: seen.Event) -> None:
        actions = step(self.state, event, self.now)
        check(self.state)
        self.actions += actions
        for action in actions:
            self._perform(action)

    def _perform(self, action: orders.Action) -> None:
        match action:
            case orders.Send(session=session, message=message):
                to = self.members[session]
                self._after(BRIEF, lambda: self._say(to, told.MasterSaid(message)))
            case orders.SaveStatus(version=version):
                self._after(BRIEF, lambda: self._tell(seen.StatusSaved(version)))
            case orders.CreatePod(member=made, rank_index=rank_index):
                name = identity.name_of(self.job, made)
                self.made.append(made)
                self.made_at[made] = self.now
                if name in self.members:
                    self._appears(self.members[name], rank_index)
            case orders.ProbeMember(member=asked):
                is_there = any(each.member == asked and not each.is_over for each in self.members.values())
                self._after(BRIEF, lambda: self._tell(seen.MemberProbed(asked, is_there)))
            case _:
                pass

    def _appears(self, member: Member, rank_index: RankIndex | None) -> None:
        """Its recording begins, now or when it did."""
        late = max(0.0, self.now + BRIEF - member.lines[0]["at"])
        for line in member.lines:
            self._after(line["at"] + late - self.now, lambda line=line: self._happens(member, line, rank_index))  # type: ignore[misc]

    def _owner_read(self, owner: Document) -> None:
        self._tell(seen.OwnerSized(owners_resize.replicas_of(owner), owners_completion.is_suspended(owner)))
        if (end := owners_completion.end_of(owner)) is not None:
            self._tell(end)

    # -- what was recorded --------------------------------------------------------------------------------------------
    def _happens(self, member: Member, line: Line, rank_index: RankIndex | None) -> None:
        if "object" in line:
            self._shown(member, deepcopy(line["object"]), line["type"], rank_index)
        elif line.get("signal") == "SIGTERM" and line["to"] == SIDECAR_CONTAINER:
            self._say(member, told.SigtermReceived(member.grace))
        elif line.get("signal") == "SIGTERM" and member.trainer:
            self._say(member, told.TerminationAsked("SIGTERM", member.grace))
        elif "exit" in line and line["of"] != SIDECAR_CONTAINER:
            self._trainer_ended(member)
        elif "log" in line:
            self._logged(member, line["log"]["kind"], line["log"]["message"])

    def _shown(self, member: Member, pod: Document, kind: str, rank_index: RankIndex | None) -> None:
        if not self.is_adopted:
            if member.name not in self.deleted:
                for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                    pod["metadata"].pop(key, None)
                if kind == "DELETED":
                    return
            pod["metadata"]["labels"][RANK_INDEX] = "" if rank_index is None else str(rank_index)
        if (found := observe.seen(pod)) is None:
            return
        member.uid, member.member, member.role, member.rank_index = (
            found.uid,
            found.member,
            found.role,
            found.rank_index,
        )
        member.grace = float(pod["spec"].get("terminationGracePeriodSeconds") or 30)
        is_gone = kind == "DELETED" or observe.is_gone(pod)
        self._tell(observe.gone(pod, found, is_deleted=kind == "DELETED") if is_gone else found)

    def _logged(self, member: Member, kind: str, message: str) -> None:
        """The sidecar's own words stand for what reached it from outside."""
        pid = int(found[1]) if (found := _PID.search(message)) else 0
        if kind == "Began":
            assert member.member is not None
            place = (member.member, PodUid(member.uid), Role(member.role), member.rank_index)
            me = told.Began(self.spec.name, *place, "", "10.0.0.1", 9000, 1, is_native=self.is_native)
            self._say(member, me)
        elif kind == "MasterConnected":
            self._say(member, told.MasterConnected())
        elif kind == "TrainerConnected":
            member.trainer, member.ended = pid, False
            came = told.HookConnected("hooks", "template", pid, "T0", "recorded", 1, None, NO_GENERATION, ())
            self._say(member, came)
        elif kind == "TrainerLost":
            self._trainer_ended(member)
        elif kind == "WorkerExited" and member.has_work:
            code = int(found[1]) if (found := _CODE.search(message)) else None
            end = WorkerExit(0, pid, code, None if code is not None else 9, "more memory" in message, step=1)
            self._say(member, told.WorkerExited(member.generation, end))

    def _trainer_ended(self, member: Member) -> None:
        pid, member.trainer = member.trainer, 0
        if pid:
            self._say(member, told.TrainerEnded(pid))

    # -- a sidecar ----------------------------------------------------------------------------------------------------
    def _wake(self, member: Member) -> None:
        self._say(member, told.Woke())

    def _say(self, member: Member, event: told.Event) -> None:
        for action in sidecar_core.step(member.state, event, self.now):
            self._do(member, action)

    def _do(self, member: Member, action: wanted.Action) -> None:
        match action:
            case wanted.Send(message=message):
                message = dataclasses.replace(message, ranks=()) if isinstance(message, Report) else message
                self._after(BRIEF, lambda: self._tell(seen.SidecarSaid(member.name, message)))
            case wanted.StartWorkers(generation=generation):
                self._after(BRIEF, lambda: self._say(member, told.WorkersStarted(generation, (1000,))))
            case wanted.StopWorkers(generation=generation):
                self._after(BRIEF, lambda: self._say(member, told.WorkersStopped(generation, 0)))
            case wanted.FinishTrainer():
                self._after(BRIEF, lambda: self._trainer_ended(member))
            case wanted.FindPort():
                self._after(BRIEF, lambda: self._say(member, told.PortFound(2000)))
            case wanted.SampleUsage():
                self._after(BRIEF, lambda: self._say(member, told.UsageSampled(0.0, 0.0)))
            case wanted.ReadPages(generation=generation):
                pages = told.PagesRead(generation, (RankProgress(0, 1, 0.0, "step"),))
                self._after(BRIEF, lambda: self._say(member, pages))
            case wanted.Exit(exit_code=code):
                member.code, member.over_at = code, self.now
                self._after(BRIEF, lambda: self._tell(seen.SidecarDisconnected(member.name)))
            case _:
                pass


def _is_pod(line: Line) -> bool:
    return bool(line.get("object", {}).get("kind") == "Pod")
