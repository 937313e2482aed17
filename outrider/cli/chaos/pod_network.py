"""`outrider chaos slow-network` and `cut-network` for a pod of a cluster.

A trainer has no right to break its own network, and should have none. So the command makes, with its user's own rights,
one privileged pod on the same node, of the image that the installed Outrider names, or its user. A pod's owner may call
any container a sidecar: whose image is another one is refused, or he would be root on that node. It enters the pod's
network namespace (training_hooks/chaos/pod_network.py), holds the fault there, and undoes it after its time, when it is
deleted, or when the pod has gone: whatever becomes of this command. A command that was given a time stays for it, and
removes what it made.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from outrider.cli.errors import UserError
from outrider.cli.kube.api import Absent, Forbidden, asked
from outrider.master.core.k8s.pods.containers import status_of
from outrider.master.core.k8s.values.chaos import NETWORK, Fault, parsed
from outrider.master.core.k8s.values.names import DOMAIN, INJECT, SIDECAR_CONTAINER, Document

PROGRAM = "/opt/outrider/hooks/training_hooks/faults.py"
"""In the sidecar's image (Dockerfile.sidecar)."""
FAULT = f"{DOMAIN}/fault"
"""The annotation of the pod that holds one."""
CONTAINER = "fault"
INSTALLED, VARIABLE = ("outrider-master", "outrider-system"), "OUTRIDER_IMAGE"
FLAG = "--image IMAGE names the one to be used"
LONGEST = 3600.0
"""Seconds of a fault without a time: nobody may remember to undo it."""
BEGINS, GRACE, POLL = 60.0, 10, 0.3
ENDED = ("Failed", "Succeeded")


@dataclass(frozen=True)
class Network:
    """Of one pod, which may be broken. Every function raises UserError."""

    api: Any
    pod: Document

    def start(self, fault: Fault, image: str | None = None) -> None:
        """Returns when it is there; where it has a time, when it is over and what was made for it has gone. `image`: of
        the pod that makes it, where its user names one."""
        if self.pod["spec"].get("hostNetwork"):
            raise UserError(f"{self} has its node's own network, which is not broken")
        image = image or self._installed()
        holder = holder_of(self.pod, replace(fault, seconds=fault.seconds or LONGEST), image)
        name, stays = holder["metadata"]["name"], False
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it made is removed then, too
        self._make(holder, fault)
        try:
            click.echo(f"{self}: {self._told(name)['about']}, {self._until(fault)}")
            stays = fault.seconds is None
            if not stays:
                self._stay(name)
                click.echo(f"{self}: {fault} is over")
        finally:
            if not stays:
                self._remove(name)

    def _installed(self) -> str:
        """The image of the sidecars, as the installed master names it; the pod's must be that one."""
        from kubernetes.client import AppsV1Api

        try:
            call = AppsV1Api(self.api.api_client).read_namespaced_deployment
            found = self.api.api_client.sanitize_for_serialization(asked(call, "get", *INSTALLED, kind="deployment"))
        except (Absent, Forbidden) as error:
            raise UserError(
                f"{self}: which image makes the fault, the installed Outrider says: {error}; {FLAG}"
            ) from None
        containers = found["spec"]["template"]["spec"]["containers"]
        named = (each.get("value") for c in containers for each in c.get("env") or () if each["name"] == VARIABLE)
        image, own = next(named, None), _sidecar(self.pod)["image"]
        if image != own:
            raise UserError(
                f"{self}: its {SIDECAR_CONTAINER} is of the image {own}, and the installed Outrider's are of {image}: "
                f"no privileged pod is made of an image that the pod's owner may have named; {FLAG}"
            )
        return str(own)

    def undo(self, name: str | None) -> list[str]:
        """The faults that ran and do not any more; all, or the one of this name."""
        found = [each for each in self._holders() if name in (None, _fault_of(each).name)]
        for each in found:
            self._remove(each["metadata"]["name"])
        return [str(_fault_of(each)) for each in found if _phase(each) not in ENDED]

    def listed(self) -> list[str]:
        names = [each["metadata"]["name"] for each in self._holders() if _phase(each) == "Running"]
        told = [self._said(name) for name in names]
        return [f"{self}: {one['fault']}: {one['about']}" for one in told if one and "about" in one]

    # -- the pod that holds it ------------------------------------------------------------------------------------
    def _holders(self) -> list[Document]:
        named = (_named(self.pod, kind) for kind in NETWORK)
        return [each for each in (self._read(name) for name in named) if each is not None]

    def _make(self, holder: Document, fault: Fault) -> None:
        name, node = holder["metadata"]["name"], self.pod["spec"]["nodeName"]
        if phase := self._phase(name):
            if phase not in ENDED:
                raise UserError(f"{self}: {fault.name} runs there already: undo it first")
            self._remove(name)
        try:
            asked(self.api.create_namespaced_pod, "create", name, self._namespace, body=holder)
        except Forbidden as refusal:
            raise UserError(
                f"{self}: its network is broken from beside, by a privileged pod on {node} that is made with your own "
                f"rights, and that is refused: {refusal.said or refusal.message}"
            ) from None

    def _told(self, name: str) -> Document:
        """What the program says of the fault, once it is there."""
        found = self._wait(lambda: self._said(name) or self._phase(name) in ("", *ENDED), BEGINS)
        told = found if isinstance(found, dict) else self._said(name)
        if told and "error" not in told:
            return told
        why = told["error"] if told else f"the pod {name}, which is to make it, {self._why(name)}"
        raise UserError(f"{self}: {why}")

    def _stay(self, name: str) -> None:
        """Until it has ended by itself, or was deleted."""
        self._wait(lambda: self._phase(name) in ("", *ENDED), math.inf)
        if self._phase(name) == "Failed":
            raise UserError(f"{self}: the pod {name}, which held the fault and was to undo it, {self._why(name)}")

    def _said(self, name: str) -> Document | None:
        """Its first line; None before it has one."""
        try:
            said: Document = json.JSONDecoder().raw_decode(self._log(name))[0]
        except ValueError:
            return None
        return said

    def _log(self, name: str) -> str:
        if self._phase(name) in ("", "Pending"):
            return ""
        call, doing = self.api.read_namespaced_pod_log, "read the log of"
        return str(asked(call, doing, name, self._namespace, _preload_content=False).data.decode(errors="replace"))

    def _why(self, name: str) -> str:
        """What the cluster and its own log say of one that does not do what it should."""
        found = self._read(name)
        if found is None:
            return "was deleted"
        status = found.get("status") or {}
        waiting = (status_of(found, CONTAINER).get("state") or {}).get("waiting") or {}
        words = [about.get(word) for about in (status, waiting) for word in ("reason", "message")]
        said = ": ".join(str(word).strip() for word in (*words, self._log(name)[-300:]) if word)
        return f"is {_phase(found)}: {said or 'nothing is said about why'}"

    def _remove(self, name: str) -> None:
        """Returns when it has gone, and so its fault."""
        try:
            asked(self.api.delete_namespaced_pod, "delete", name, self._namespace)
        except Absent:
            return
        if not self._wait(lambda: self._phase(name) == "", BEGINS):
            raise UserError(f"{self}: the pod {name} was deleted and is still there")

    def _phase(self, name: str) -> str:
        return _phase(self._read(name))

    def _read(self, name: str) -> Document | None:
        try:
            found = asked(self.api.read_namespaced_pod, "get", name, self._namespace)
        except Absent:
            return None
        document: Document = self.api.api_client.sanitize_for_serialization(found)
        return document

    def _wait(self, claim: Callable[[], Any], seconds: float) -> Any:
        """What it says at last."""
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
    """The pod that makes the fault and holds it. It goes with the pod that has it, if not before."""
    about = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",  # the sidecar runs of it, on this node, where it is the installed one
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
            "hostNetwork": True,  # it needs no address, and no mesh puts a proxy into it
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
    """Empty where there is none."""
    return str((holder.get("status") or {}).get("phase") or "Pending") if holder else ""


def _sidecar(pod: Document) -> Document:
    """A container, or an init container where it is a native one; `refused` has seen that it is there."""
    everything = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    return next(each for each in everything if each["name"] == SIDECAR_CONTAINER)
