"""`outrider chaos slow-network` and `cut-network` for a pod of a cluster.

A trainer has no right to break its own network, and should have none. So the command creates, with the user's own
rights, one privileged pod on the same node. Its image is that of the installed Outrider, or the one given by --image.
The owner of a pod may call any container a sidecar, so a pod whose sidecar has another image is refused: otherwise its
owner could become root on that node. The privileged pod enters the pod's network namespace
(training_hooks/chaos/pod_network.py) and holds the fault there. It undoes the fault after its duration, when it is
deleted, or when the pod is gone, even if this command was killed. With a duration, the command waits until the end and
deletes the privileged pod.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from outrider.cli.errors import UserError
from outrider.cli.kube.api import Absent, Forbidden, call_api
from outrider.master.core.k8s.pods.containers import cannot_start, status_of
from outrider.master.core.k8s.values.chaos import NETWORK, Fault, parsed
from outrider.master.core.k8s.values.names import DOMAIN, INJECT, SIDECAR_CONTAINER, Document

PROGRAM = "/opt/outrider/hooks/training_hooks/faults.py"
"""The program that injects faults, in the sidecar's image (Dockerfile.sidecar)."""
FAULT = f"{DOMAIN}/fault"
"""The annotation with the fault, on the pod that holds it."""
CONTAINER = "fault"
INSTALLED, VARIABLE = ("outrider-master", "outrider-system"), "OUTRIDER_IMAGE"
FLAG = "choose an image with --image IMAGE"
LONGEST = 3600.0
"""Duration in seconds of a fault without --for, in case the user forgets to undo it."""
BEGINS, GRACE, POLL = 120.0, 10, 0.3
GONE = 180.0
"""Seconds until a deleted pod has ended and is gone. A kubelet that removes the container before it has seen it end
says so when it next looks at the pod, up to 90 s later (1.20: one of 160 deletions)."""
ENDED = ("Failed", "Succeeded")


@dataclass(frozen=True)
class Network:
    """The network of a pod that allows faults. Every function raises UserError."""

    api: Any
    pod: Document

    def start(self, fault: Fault, image: str | None = None) -> None:
        """Inject a fault. Without a duration, return once it is active; else when it is over and the pod that held it
        is deleted. `image` is the image of that pod, if the user chose one."""
        if self.pod["spec"].get("hostNetwork"):
            raise UserError(f"{self} uses the network of its node, which faults must not break")
        image = image or self._installed()
        holder = holder_of(self.pod, replace(fault, seconds=fault.seconds or LONGEST), image)
        name, stays = holder["metadata"]["name"], False
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM also deletes the pod
        self._make(holder, fault)
        try:
            click.echo(f"{self}: {self._started(name)['about']}, {self._until(fault)}")
            stays = fault.seconds is None
            if not stays:
                self._stay(name)
                click.echo(f"{self}: {fault} is over")
        finally:
            if not stays:
                self._remove(name)

    def _installed(self) -> str:
        """The image of sidecars that the installed master uses; the pod's sidecar must have the same one."""
        from kubernetes.client import AppsV1Api

        try:
            call = AppsV1Api(self.api.api_client).read_namespaced_deployment
            found = self.api.api_client.sanitize_for_serialization(call_api(call, "get", *INSTALLED, kind="deployment"))
        except (Absent, Forbidden) as error:
            raise UserError(
                f"{self}: the image of the installed Outrider, which injects the fault, is not known: {error}; {FLAG}"
            ) from None
        containers = found["spec"]["template"]["spec"]["containers"]
        named = (each.get("value") for c in containers for each in c.get("env") or () if each["name"] == VARIABLE)
        image, own = next(named, None), _sidecar(self.pod)["image"]
        if image != own:
            raise UserError(
                f"{self}: its {SIDECAR_CONTAINER} has the image {own}, but the installed Outrider uses {image}; no "
                f"privileged pod is created from an image that the pod's owner may have chosen; {FLAG}"
            )
        return str(own)

    def undo(self, name: str | None) -> list[str]:
        """Undo all faults, or the one of this name; returns the faults that were undone."""
        found = [each for each in self._holders() if name in (None, _fault_of(each).name)]
        for each in found:
            self._remove(each["metadata"]["name"])
        return [str(_fault_of(each)) for each in found if _phase(each) not in ENDED]

    def listed(self) -> list[str]:
        names = [each["metadata"]["name"] for each in self._holders() if _phase(each) == "Running"]
        reports = [self._report(name) for name in names]
        return [f"{self}: {one['fault']}: {one['about']}" for one in reports if one and "about" in one]

    # -- the pod that holds it ------------------------------------------------------------------------------------
    def _holders(self) -> list[Document]:
        named = (_named(self.pod, kind) for kind in NETWORK)
        return [each for each in (self._read(name) for name in named) if each is not None]

    def _make(self, holder: Document, fault: Fault) -> None:
        name, node = holder["metadata"]["name"], self.pod["spec"]["nodeName"]
        if phase := self._phase(name):
            if phase not in ENDED:
                raise UserError(f"{self}: {fault.name} is already active; undo it first")
            self._remove(name, ended=())
        try:
            call_api(self.api.create_namespaced_pod, "create", name, self._namespace, body=holder)
        except Forbidden as refusal:
            raise UserError(
                f"{self}: to break its network, a privileged pod on {node} must be created with your own rights, which "
                f"was refused: {refusal.server_message or refusal.message}"
            ) from None

    def _started(self, name: str) -> Document:
        """The program's report of the fault, once it is active."""
        found = self._wait(lambda: self._report(name) or self._phase(name) in ("", *ENDED) or self._stuck(name), BEGINS)
        report = found if isinstance(found, dict) else self._report(name)
        if report and "error" not in report:
            return report
        why = report["error"] if report else f"pod {name}, which should inject the fault, {self._why(name)}"
        raise UserError(f"{self}: {why}")

    def _stay(self, name: str) -> None:
        """Wait until the pod with the fault has ended or was deleted."""
        self._wait(lambda: self._phase(name) in ("", *ENDED), math.inf)
        if self._phase(name) == "Failed":
            raise UserError(f"{self}: pod {name}, which should undo the fault, {self._why(name)}")

    def _report(self, name: str) -> Document | None:
        """The first line of the program's log; None before there is one."""
        try:
            report: Document = json.JSONDecoder().raw_decode(self._log(name))[0]
        except ValueError:
            return None
        return report

    def _log(self, name: str) -> str:
        if self._phase(name) in ("", "Pending"):
            return ""
        call, doing = self.api.read_namespaced_pod_log, "read the log of"
        return str(call_api(call, doing, name, self._namespace, _preload_content=False).data.decode(errors="replace"))

    def _why(self, name: str) -> str:
        """Why the pod with the fault has failed, from its status and its log, as the end of a sentence."""
        found = self._read(name)
        if found is None:
            return "was deleted"
        status = found.get("status") or {}
        words = (
            status.get("reason"),
            status.get("message"),
            cannot_start(status_of(found, CONTAINER)),
            self._log(name)[-300:],
        )
        reasons = ": ".join(str(word).strip() for word in words if word)
        return f"is {_phase(found)}: {reasons or 'no reason given'}"

    def _stuck(self, name: str) -> str:
        """Why the container of the pod with the fault cannot start, such as an image that cannot be pulled."""
        return cannot_start(status_of(self._read(name) or {}, CONTAINER))

    def _remove(self, name: str, ended: Sequence[str] = ENDED) -> None:
        """Delete the pod with the fault; return when it is gone or in a phase in which the fault is over."""
        try:
            call_api(self.api.delete_namespaced_pod, "delete", name, self._namespace)
        except Absent:
            return
        if not self._wait(lambda: self._phase(name) in ("", *ended), GONE):
            raise UserError(
                f"{self}: pod {name} was deleted {GONE:g} s ago but is still {self._phase(name)}; does "
                f"{self.pod['spec']['nodeName']} answer?"
            )

    def _phase(self, name: str) -> str:
        return _phase(self._read(name))

    def _read(self, name: str) -> Document | None:
        try:
            found = call_api(self.api.read_namespaced_pod, "get", name, self._namespace)
        except Absent:
            return None
        document: Document = self.api.api_client.sanitize_for_serialization(found)
        return document

    def _wait(self, claim: Callable[[], Any], seconds: float) -> Any:
        """The first true result of `claim`, or its last result after so many seconds."""
        until = time.monotonic() + seconds
        while not (found := claim()) and time.monotonic() < until:
            time.sleep(POLL)
        return found

    def _until(self, fault: Fault) -> str:
        undo = f"outrider chaos undo --pod {self.pod['metadata']['name']} -n {self._namespace}"
        return f"for {fault.lasts}" if fault.seconds else f"for {LONGEST:g} s, or until: {undo}"

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    def __str__(self) -> str:
        return f"pod {self._namespace}/{self.pod['metadata']['name']}"


def holder_of(pod: Document, fault: Fault, image: str) -> Document:
    """The pod that injects the fault and holds it. At the latest it is deleted with the pod that has the fault."""
    about = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",  # the installed image is on this node: the pod's sidecar runs from it
        "command": ["python3", "-I", "-S", PROGRAM, "beside", str(fault)],
        "env": [{"name": "OUTRIDER_POD_UID", "value": about["uid"]}, {"name": "OUTRIDER_DIR", "value": "/tmp"}],
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _named(pod, fault.name),
            "labels": {INJECT: "false"},
            "annotations": {FAULT: str(fault)},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": pod["spec"]["nodeName"],
            "hostPID": True,
            "hostNetwork": True,  # it needs no address, and no mesh adds a proxy to it
            "restartPolicy": "Never",
            "activeDeadlineSeconds": math.ceil((fault.seconds or LONGEST) + 2 * BEGINS),
            "terminationGracePeriodSeconds": GRACE,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            **{key: pod["spec"][key] for key in ("imagePullSecrets",) if key in pod["spec"]},
            "containers": [container],
        },
    }


def _named(pod: Document, fault: str) -> str:
    return f"outrider-{fault}-{pod['metadata']['uid'][:8]}"


def _fault_of(holder: Document) -> Fault:
    return parsed(holder["metadata"]["annotations"][FAULT])


def _phase(holder: Document | None) -> str:
    """The phase of the pod; empty if there is no pod."""
    return str((holder.get("status") or {}).get("phase") or "Pending") if holder else ""


def _sidecar(pod: Document) -> Document:
    """The sidecar's container, which is an init container if it is native; `refused` has checked that it exists."""
    everything = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    return next(each for each in everything if each["name"] == SIDECAR_CONTAINER)
