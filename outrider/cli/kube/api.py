"""The API server as kubectl would reach it, and its refusals as sentences."""

from __future__ import annotations

import json
import os
from typing import Any

from outrider.cli.errors import UserError
from outrider.master.core.k8s.values.names import Document

PATIENCE = 30.0
"""Seconds for anything that the API server is asked; a memory may take long to fill, so that a fault has `MOST`."""
MOST = 120.0


class Absent(UserError):
    """There is no such pod, or other object."""


class Forbidden(UserError):
    """`said`: by whom, in the API server's own words; a request to execute that is refused has none."""

    said = ""


def cluster() -> tuple[Any, str]:
    """The API as kubectl would reach it, and the namespace that it would mean."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise UserError("pods of a cluster need the package kubernetes: pip install 'outrider[kubernetes]'") from None
    try:
        files = os.environ.get("KUBECONFIG")
        config.load_kube_config(config_file=files)
        _, context = config.list_kube_config_contexts(config_file=files)
    except (config.ConfigException, OSError) as error:
        raise UserError(
            f"no cluster is known: {error}; pods of one need a kubeconfig (KUBECONFIG) as kubectl does"
        ) from None
    return client.CoreV1Api(), (context.get("context") or {}).get("namespace") or "default"


def asked(call: Any, doing: str, name: str, namespace: str, kind: str = "pod", **options: Any) -> Any:
    """What the API server says of a pod (or of another kind), or where no name is given of pods. Raises UserError."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    where = {"name": name} if name and "body" not in options else {}
    try:
        return call(**where, namespace=namespace, **options, _request_timeout=PATIENCE)
    except ApiException as error:
        raise _refusal(error, doing, name, namespace, kind) from None
    except HTTPError as error:
        raise UserError(f"the API server does not answer: {error}") from None


def _refusal(error: Any, doing: str, name: str, namespace: str, kind: str) -> UserError:
    """An exec that is refused has its status in the reason alone."""
    pod = f"{f'the {kind} {name!r}' if name else f'{kind}s'} in the namespace {namespace}"
    if error.status == 404:
        return Absent(f"there is no {kind} {name!r} in the namespace {namespace}; -n names another")
    if error.status == 403 or "403" in str(error.reason):
        refusal = Forbidden(f"your credentials may not {doing} {pod} (403 Forbidden)")
        refusal.said = _message(error.body)
        return refusal
    said = _message(error.body) or _message(str(error.reason)) or f"{error.status or ''} {error.reason}"
    return UserError(f"the API server did not {doing} {pod}: {said}")


def _message(said: Any) -> str:
    """Of the Status in it; empty where there is none. An exec that is refused has other text around it."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    try:
        return str(json.JSONDecoder().raw_decode(text, max(0, text.find('{"')))[0]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def executed(
    api: Any, name: str, namespace: str, container: str, command: list[str], most: float = MOST
) -> tuple[str, str, int]:
    """What the command said, on both streams, and its exit code; it has `most` seconds."""
    import yaml
    from kubernetes.stream import stream
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    def call(**options: Any) -> Any:
        return stream(api.connect_get_namespaced_pod_exec, **options, _preload_content=False)

    options: dict[str, Any] = {"container": container, "command": command, "stdout": True, "stderr": True}
    told = asked(call, "execute commands in", name, namespace, **options)
    try:
        told.run_forever(timeout=most)
        if told.is_open():
            raise UserError(f"pod {namespace}/{name} has not answered for {most:g} s")
        end = yaml.safe_load(told.read_channel(ERROR_CHANNEL)) or {}
        return told.read_stdout(), told.read_stderr(), _code(end)
    finally:
        told.close()


def _code(end: Document) -> int:
    """The exit code by the status that ends the stream. Raises UserError where nothing was executed."""
    if end.get("status") == "Success":
        return 0
    causes = (end.get("details") or {}).get("causes") or [{}]
    if causes[0].get("reason") != "ExitCode":
        raise UserError(f"nothing could be executed there: {end.get('message') or 'the connection was closed'}")
    return int(causes[0]["message"])
