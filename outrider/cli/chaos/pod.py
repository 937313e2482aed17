"""`outrider chaos ... --pod NAME`: the same faults in a pod of a cluster, by the user's own rights there.

Commands are executed in the pod's containers as `kubectl exec` would, with the credentials that kubectl has; nothing is
asked of Outrider's master, which has no such right (docs/adr/0016). A pod must say that it may be broken. What makes
the faults is the program in the pod's own hooks, by the name that pods of the release before have too.
"""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from outrider.cli.chaos.pod_network import Network
from outrider.cli.errors import UserError
from outrider.cli.kube.api import asked, cluster, executed
from outrider.cli.text import plural
from outrider.master.core.k8s.injection.sidecar import HOOKS
from outrider.master.core.k8s.injection.trainer import LAUNCH
from outrider.master.core.k8s.pods.containers import status_of
from outrider.master.core.k8s.pods.trainer_container import trainer_name
from outrider.master.core.k8s.values.chaos import ALLOWED, NETWORK, Fault
from outrider.master.core.k8s.values.names import CHAOS, INJECTED, SIDECAR_CONTAINER, Document

Command = Callable[..., None]
PROGRAM = f"{HOOKS}/training_hooks/faults.py"
NO_PYTHON = 69
FIND_PYTHON = f"""
for each in "$0" python3 python python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 \
/usr/bin/python3 /usr/local/bin/python3; do
    "$each" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && exec "$each" -I -S {PROGRAM} "$@"
done
exit {NO_PYTHON}
"""
"""In the order of `outrider-launch`: the command's own, else any."""
GRACE = 1
"""Seconds of a pod that is killed: 0 would forget it before its processes are gone."""


@dataclass(frozen=True)
class Pod:
    """One that may be broken. Every function raises UserError."""

    api: Any
    name: str
    namespace: str
    trainer: str
    python: str
    network: Network

    # -- faults that last -----------------------------------------------------------------------------------------
    def start(self, fault: Fault) -> None:
        told = self._called(self.trainer, "start", str(fault))
        undone = f"until: outrider chaos undo --pod {self.name} -n {self.namespace}"
        click.echo(f"{self}: {told['about']}, {undone if fault.seconds is None else f'for {fault.lasts}'}")

    def undo(self, name: str | None) -> None:
        undone = self.network.undo(name)
        self._say_undone(undone)
        if name not in NETWORK:
            undone += (more := self._called(self.trainer, "undo", *([name] if name else []))["undone"])
            self._say_undone(more)
        if not undone:
            click.echo(f"no fault runs in {self}")

    def _say_undone(self, faults: list[str]) -> None:
        for what in faults:
            click.echo(f"{self}: {what} is undone")

    def listed(self) -> None:
        told = self._called(self.trainer, "list")
        lines = [f"{self}: {one['fault']}: {one.get('about', '')}" for one in told["running"]]
        lines += self.network.listed()
        lines += [f"{self}: {one['fault']}: refused: {one['why']}" for one in told["refused"]]
        click.echo("\n".join(lines) or f"no fault runs in {self}")

    def hang(self, fault: Fault) -> None:
        if fault.seconds is None:
            self.send("process", signal.SIGSTOP)
        else:
            self.start(fault)

    # -- for good -------------------------------------------------------------------------------------------------
    def send(self, part: str, number: signal.Signals) -> None:
        container = SIDECAR_CONTAINER if part == "sidecar" else self.trainer
        (pid,) = self._sent(container, part, number)
        named = {"process": "worker process", "launcher": "template or launcher"}.get(part, part)
        click.echo(f"sent {number.name} to the {named} of {self} (pid {pid})")

    def freeze(self, seconds: float | None) -> None:
        if seconds is not None:
            raise UserError(
                f"a pod is frozen in both of its containers, and nothing in it could end that: leave --for away, and "
                f"call outrider chaos thaw-member --pod {self.name} -n {self.namespace}"
            )
        self.send_all(signal.SIGSTOP)

    def send_all(self, number: signal.Signals) -> None:
        """The sidecar's container first: it must not tell of the other."""
        pids = {pid for each in (SIDECAR_CONTAINER, self.trainer) for pid in self._sent(each, "all", number)}
        click.echo(f"sent {number.name} to the {plural(len(pids), 'process', 'processes')} of {self}")

    def kill(self, number: signal.Signals) -> None:
        if number != signal.SIGKILL:
            raise UserError(
                f"the kubelet kills a pod with SIGKILL: --signal {number.name} is not for kill-member --pod"
            )
        asked(self.api.delete_namespaced_pod, "delete", self.name, self.namespace, grace_period_seconds=GRACE)
        click.echo(f"{self} is deleted, with {GRACE} s of grace")

    # -- how ------------------------------------------------------------------------------------------------------
    def _sent(self, container: str, part: str, number: signal.Signals) -> list[int]:
        pids: list[int] = self._called(container, "signal", part, number.name.removeprefix("SIG"))["pids"]
        return pids

    def _called(self, container: str, *words: str) -> dict[str, Any]:
        command = ["sh", "-c", FIND_PYTHON, self.python, *words]
        said, errors, code = executed(self.api, self.name, self.namespace, container, command)
        if code == NO_PYTHON:
            raise UserError(
                f"the container {container} of {self} has no python3 (3.8 or newer): nothing can be made there"
            )
        try:
            told: dict[str, Any] = json.loads(said)
        except ValueError:
            raise UserError(
                f"the program that makes faults ended with {code} in the container {container} of {self}: "
                f"{errors[-300:].strip() or 'it said nothing'}"
            ) from None
        if "error" in told:
            raise UserError(f"{self}: {told['error']}")
        return told

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


def or_pod(made: Command) -> Callable[[Command], Command]:
    """The options --pod and -n of a command: where they are given, `made` is called with the pod and the rest of the
    command's options, and the command is not."""

    def with_options(command: Command) -> Command:
        @click.option("--pod", metavar="NAME", help="A pod of a cluster instead of a local job.")
        @click.option("-n", "--namespace", metavar="NS", help="The pod's namespace; else that of kubectl's context.")
        @functools.wraps(command)
        def either(pod: str | None, namespace: str | None, **options: Any) -> None:
            if pod is None and namespace is not None:
                raise UserError("--namespace is for --pod NAME; a local job has none")
            if pod is None:
                return command(**options)
            job, member = options.pop("job", None), options.pop("member", None)
            if job or member:
                given = f"the job {job}" if job else f"--member {member}"
                raise UserError(f"--pod {pod} is a pod of a cluster, and {given} is local: give one of them")
            if not pod:
                raise UserError("--pod wants the name of a pod")
            return made(found(pod, namespace), **options)

        return either

    return with_options


def found(name: str, namespace: str | None) -> Pod:
    """The pod of this name, where it may be broken."""
    api, default = cluster()
    namespace = namespace or default
    read = asked(api.read_namespaced_pod, "get", name, namespace)
    document: Document = api.api_client.sanitize_for_serialization(read)
    if why := refused(document):
        raise UserError(f"pod {namespace}/{name} {why}")
    trainer = trainer_name(document)
    return Pod(api, name, namespace, trainer, _python_of(document, trainer), Network(api, document))


def refused(pod: Document) -> str:
    """Why this pod is not broken, as what follows its name; empty where it may be."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    notes, trainer = metadata.get("annotations") or {}, trainer_name(pod)
    if INJECTED not in notes:
        return f"is not supervised by Outrider: it has no annotation {INJECTED}"
    if notes.get(CHAOS) != ALLOWED:
        return (
            f"does not say that it may be broken: only a pod with the annotation {CHAOS}: {ALLOWED} is. Write it into "
            f"the metadata of the pod's template, or for this pod alone: kubectl annotate pod {metadata['name']} "
            f"-n {metadata['namespace']} --overwrite {CHAOS}={ALLOWED}"
        )
    if metadata.get("deletionTimestamp"):
        return "is being deleted"
    if "running" not in (status_of(pod, trainer).get("state") or {}):
        return f"is {status.get('phase') or 'not started'}: its container {trainer} does not run"
    return ""


def _python_of(pod: Document, trainer: str) -> str:
    """The command's own, behind the launcher; else any."""
    command = next(c.get("command") or [] for c in pod["spec"]["containers"] if c["name"] == trainer)
    own = str(command[1]) if command[:1] == [LAUNCH] and len(command) > 1 else ""
    return own if os.path.basename(own).startswith("python") else "python3"
