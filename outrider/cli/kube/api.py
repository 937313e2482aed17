"""Requests to the API server that kubectl would use, with errors as sentences."""

from __future__ import annotations

import json
import os
from typing import Any

from outrider.cli.errors import UserError
from outrider.master.core.k8s.values.names import Document

PATIENCE = 30.0
"""Seconds to wait for the API server."""
MOST = 120.0
"""Seconds to wait for a command in a pod: to fill its memory may take long."""


class Absent(UserError):
    """The pod, or other object, does not exist."""


class Forbidden(UserError):
    """The user has no right to the request. `server_message` is the API server's message; a refused request to execute
    has none."""

    server_message = ""


def cluster() -> tuple[Any, str]:
    """The API that kubectl would use, and its default namespace."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise UserError(
            "for pods of a cluster the package kubernetes is needed: pip install 'outrider[kubernetes]'"
        ) from None
    try:
        files = os.environ.get("KUBECONFIG")
        config.load_kube_config(config_file=files)
        _, context = config.list_kube_config_contexts(config_file=files)
    except (config.ConfigException, OSError) as error:
        raise UserError(
            f"no cluster found: {error}; pods of a cluster need a kubeconfig (KUBECONFIG), as kubectl does"
        ) from None
    return client.CoreV1Api(), (context.get("context") or {}).get("namespace") or "default"


def call_api(call: Any, doing: str, name: str, namespace: str, kind: str = "pod", **options: Any) -> Any:
    """The API server's response for an object, by default a pod, or without a name for a list. Raises UserError."""
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
    """The error for a refused request. The status of a refused exec is only in the reason."""
    pod = f"{f'the {kind} {name!r}' if name else f'{kind}s'} in the namespace {namespace}"
    if error.status == 404:
        return Absent(f"{kind} {name!r} not found in the namespace {namespace}; choose another with -n")
    if error.status == 403 or "403" in str(error.reason):
        refusal = Forbidden(f"your credentials may not {doing} {pod} (403 Forbidden)")
        refusal.server_message = _message(error.body)
        return refusal
    message = _message(error.body) or _message(str(error.reason)) or f"{error.status or ''} {error.reason}"
    return UserError(f"the API server did not {doing} {pod}: {message}")


def _message(body: Any) -> str:
    """The message of the Status in a response; empty if there is none. A refused exec has other text around it."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    try:
        return str(json.JSONDecoder().raw_decode(text, max(0, text.find('{"')))[0]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def executed(
    api: Any, name: str, namespace: str, container: str, command: list[str], most: float = MOST
) -> tuple[str, str, int]:
    """The output of a command on both streams, and its exit code; it may run for `most` seconds."""
    import yaml
    from kubernetes.stream import stream
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    def call(**options: Any) -> Any:
        return stream(api.connect_get_namespaced_pod_exec, **options, _preload_content=False)

    options: dict[str, Any] = {"container": container, "command": command, "stdout": True, "stderr": True}
    command_stream = call_api(call, "execute commands in", name, namespace, **options)
    try:
        command_stream.run_forever(timeout=most)
        if command_stream.is_open():
            raise UserError(f"pod {namespace}/{name} has not answered within {most:g} s")
        end = yaml.safe_load(command_stream.read_channel(ERROR_CHANNEL)) or {}
        return command_stream.read_stdout(), command_stream.read_stderr(), _code(end)
    finally:
        command_stream.close()


def _code(end: Document) -> int:
    """The exit code in the status that ends the stream. Raises UserError if nothing was executed."""
    if end.get("status") == "Success":
        return 0
    causes = (end.get("details") or {}).get("causes") or [{}]
    if causes[0].get("reason") != "ExitCode":
        raise UserError(f"the command could not be executed: {end.get('message') or 'the connection was closed'}")
    return int(causes[0]["message"])
