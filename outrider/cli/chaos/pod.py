"""`outrider chaos ... --pod NAME`: the same faults in a pod of a cluster, with the user's own rights.

Commands are executed in the pod's containers as `kubectl exec` would, with kubectl's credentials. Outrider's master is
not involved; it has no such right (docs/adr/0016). The pod must allow faults by an annotation. The program in the pod's
own hooks makes the faults, under the name that it also has in pods of the previous release.
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
from outrider.cli.kube.api import call_api, cluster, executed
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
"""Finds a Python in the order of `outrider-launch`: the command's own, else any other."""
GRACE = 1
"""Grace period in seconds of a killed pod: with 0 the pod would vanish before its processes are gone."""


@dataclass(frozen=True)
class Pod:
    """A pod that allows faults. Every function raises UserError."""

    api: Any
    name: str
    namespace: str
    trainer: str
    python: str
    network: Network

    # -- faults that last -----------------------------------------------------------------------------------------
    def start(self, fault: Fault) -> None:
        started = self._called(self.trainer, "start", str(fault))
        until = f"until: outrider chaos undo --pod {self.name} -n {self.namespace}"
        click.echo(f"{self}: {started['about']}, {until if fault.seconds is None else f'for {fault.lasts}'}")

    def undo(self, name: str | None) -> None:
        undone = self.network.undo(name)
        self._say_undone(undone)
        if name not in NETWORK:
            undone += (more := self._called(self.trainer, "undo", *([name] if name else []))["undone"])
            self._say_undone(more)
        if not undone:
            click.echo(f"no active fault in {self}")

    def _say_undone(self, faults: list[str]) -> None:
        for what in faults:
            click.echo(f"{self}: {what} undone")

    def listed(self) -> None:
        faults = self._called(self.trainer, "list")
        lines = [f"{self}: {one['fault']}: {one.get('about', '')}" for one in faults["running"]]
        lines += self.network.listed()
        lines += [f"{self}: {one['fault']}: refused: {one['why']}" for one in faults["refused"]]
        click.echo("\n".join(lines) or f"no active fault in {self}")

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
                f"--for: must not be used with freeze-member --pod, because nothing in a frozen pod could end the "
                f"fault; end it with: outrider chaos thaw-member --pod {self.name} -n {self.namespace}"
            )
        self.send_all(signal.SIGSTOP)

    def send_all(self, number: signal.Signals) -> None:
        """Signal all processes, the sidecar's container first, so that it does not report the other one."""
        pids = {pid for each in (SIDECAR_CONTAINER, self.trainer) for pid in self._sent(each, "all", number)}
        click.echo(f"sent {number.name} to the {plural(len(pids), 'process', 'processes')} of {self}")

    def kill(self, number: signal.Signals) -> None:
        if number != signal.SIGKILL:
            raise UserError(
                f"--signal {number.name}: must not be used with kill-member --pod, because the kubelet sends SIGKILL"
            )
        call_api(self.api.delete_namespaced_pod, "delete", self.name, self.namespace, grace_period_seconds=GRACE)
        click.echo(f"{self} deleted, with a grace period of {GRACE} s")

    # -- how ------------------------------------------------------------------------------------------------------
    def _sent(self, container: str, part: str, number: signal.Signals) -> list[int]:
        pids: list[int] = self._called(container, "signal", part, number.name.removeprefix("SIG"))["pids"]
        return pids

    def _called(self, container: str, *words: str) -> dict[str, Any]:
        command = ["sh", "-c", FIND_PYTHON, self.python, *words]
        output, errors, code = executed(self.api, self.name, self.namespace, container, command)
        if code == NO_PYTHON:
            raise UserError(
                f"container {container} of {self} has no python3 (3.8 or newer), which is needed to inject faults"
            )
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            raise UserError(
                f"the program that injects faults ended with exit code {code} in container {container} of {self}: "
                f"{errors[-300:].strip() or 'no output'}"
            ) from None
        if "error" in answer:
            raise UserError(f"{self}: {answer['error']}")
        return answer

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


def or_pod(made: Command) -> Callable[[Command], Command]:
    """Gives a command the options --pod and -n. With --pod, `made` runs instead of the command, with the pod and the
    other options."""

    def with_options(command: Command) -> Command:
        @click.option("--pod", metavar="NAME", help="Use a pod of a cluster instead of a local job.")
        @click.option("-n", "--namespace", metavar="NS", help="Namespace of the pod. Default: of kubectl's context.")
        @functools.wraps(command)
        def either(pod: str | None, namespace: str | None, **options: Any) -> None:
            if pod is None and namespace is not None:
                raise UserError(f"--namespace {namespace}: must be used with --pod NAME")
            if pod is None:
                return command(**options)
            job, member = options.pop("job", None), options.pop("member", None)
            if job or member:
                given = f"JOB {job}" if job else f"--member {member}"
                raise UserError(f"--pod {pod} and {given}: must not be used together; a pod belongs to a cluster")
            if not pod:
                raise UserError("--pod: must have the name of a pod")
            return made(found(pod, namespace), **options)

        return either

    return with_options


def found(name: str, namespace: str | None) -> Pod:
    """The pod of this name; UserError if it does not allow faults."""
    api, default = cluster()
    namespace = namespace or default
    read = call_api(api.read_namespaced_pod, "get", name, namespace)
    document: Document = api.api_client.sanitize_for_serialization(read)
    if why := refused(document):
        raise UserError(f"pod {namespace}/{name} {why}")
    trainer = trainer_name(document)
    return Pod(api, name, namespace, trainer, _python_of(document, trainer), Network(api, document))


def refused(pod: Document) -> str:
    """Why this pod gets no fault, as the end of a sentence that begins with its name; empty if it may get one."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    notes, trainer = metadata.get("annotations") or {}, trainer_name(pod)
    if INJECTED not in notes:
        return f"is not supervised by Outrider: it has no annotation {INJECTED}"
    if notes.get(CHAOS) != ALLOWED:
        return (
            f"does not allow faults: it must have the annotation {CHAOS}: {ALLOWED}. Add it to the metadata of the "
            f"pod's template, or only to this pod: kubectl annotate pod {metadata['name']} -n {metadata['namespace']} "
            f"--overwrite {CHAOS}={ALLOWED}"
        )
    if metadata.get("deletionTimestamp"):
        return "is being deleted"
    if "running" not in (status_of(pod, trainer).get("state") or {}):
        return f"is {status.get('phase') or 'not started'}: its container {trainer} is not running"
    return ""


def _python_of(pod: Document, trainer: str) -> str:
    """The Python in the pod's command, after the launcher; else python3."""
    command = next(c.get("command") or [] for c in pod["spec"]["containers"] if c["name"] == trainer)
    own = str(command[1]) if command[:1] == [LAUNCH] and len(command) > 1 else ""
    return own if os.path.basename(own).startswith("python") else "python3"
