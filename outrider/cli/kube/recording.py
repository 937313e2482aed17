"""Reads the recording of a job from the masters' pods, through a port that the user forwards as kubectl would.

The master checks the user's token: it must be allowed to `get` the subresource `recording` of the ElasticJob. A user
with a client certificate has no token, and gets one of a service account.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import call_api, cluster
from outrider.master.core.k8s.values.names import GROUP_VERSION, LEADER, PLURAL, Document

SYSTEM = "outrider-system"
PORT = 8080
PATIENCE = 60.0
TOKEN_SECONDS = 600
"""The least lifetime of a token that the API server issues."""


@dataclass(slots=True)
class Found:
    """What the cluster has about a job."""

    namespace: str
    job: Document
    """The ElasticJob."""
    events: list[Document] = field(default_factory=list)
    recording: bytes = b""
    missing: list[str] = field(default_factory=list)
    """Why a part is missing."""

    def add(self, what: str, read: Callable[[], Any]) -> Any:
        """A part that may be missing."""
        try:
            return read()
        except UserError as why:
            self.missing.append(f"no {what}: {why.message}")
            return None


def read(name: str, namespace: str | None, system: str, account: str | None, most: int) -> Found:
    """The ElasticJob, its Events, and its recording. Raises UserError if there is no such job."""
    pods, default = cluster()
    namespace = namespace or default
    from kubernetes.client import CustomObjectsApi

    group, version = GROUP_VERSION.split("/")
    get = CustomObjectsApi(pods.api_client).get_namespaced_custom_object
    job = call_api(get, "get", name, namespace, "ElasticJob", group=group, version=version, plural=PLURAL)
    found = Found(namespace, job)
    found.events = found.add("events", lambda: _events(pods, namespace, name)) or []
    found.recording = found.add("recording", lambda: _recorded(pods, namespace, name, system, account, most)) or b""
    return found


def _recorded(api: Any, namespace: str, name: str, system: str, account: str | None, most: int) -> bytes:
    token = _token(api, namespace, account)
    return recording(_forwarded(api, system), token, namespace, name, most)


def _events(api: Any, namespace: str, name: str) -> list[Document]:
    """The Events about the ElasticJob, the oldest first."""
    about = f"involvedObject.kind=ElasticJob,involvedObject.name={name}"
    listed = call_api(api.list_namespaced_event, "list", "", namespace, "event", field_selector=about)
    found: list[Document] = api.api_client.sanitize_for_serialization(listed.items)
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))


def _token(api: Any, namespace: str, account: str | None) -> str:
    """The user's own token, or one of the service account."""
    if account is not None:
        from kubernetes.client import AuthenticationV1TokenRequest, V1TokenRequestSpec

        body = AuthenticationV1TokenRequest(spec=V1TokenRequestSpec(audiences=[], expiration_seconds=TOKEN_SECONDS))
        create = api.create_namespaced_service_account_token

        def call(**options: Any) -> Any:
            return create(name=account, **options)

        made = call_api(call, f"create a token of the service account {account} in", "", namespace, body=body)
        return str(made.status.token)
    own = str(api.api_client.configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or "")
    if not own:
        raise UserError("your kubeconfig has no token, which the master needs: name an account whose token you may "
                        "create, with --service-account")  # fmt: skip
    return own.removeprefix("Bearer ")


def _forwarded(api: Any, system: str) -> socket.socket:
    """A connection to the port of the leading master's pod."""
    from kubernetes.stream import portforward

    leaders = call_api(api.list_namespaced_pod, "list", "", system, label_selector=f"{LEADER}=true").items
    if not leaders:
        raise UserError(f"no pod in the namespace {system} has the label {LEADER}=true; choose another with --system")

    def call(**options: Any) -> Any:
        options.pop("_request_timeout")
        return portforward(api.connect_get_namespaced_pod_portforward, **options)

    name = leaders[0].metadata.name
    stream = call_api(call, "forward a port of", name, system, ports=str(PORT))
    found: socket.socket = stream.socket(PORT)
    return found


class _Connection(http.client.HTTPConnection):
    """HTTP over a connection that exists."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("localhost", PORT, timeout=PATIENCE)
        self._connected = connected

    def connect(self) -> None:
        self.sock = self._connected


def recording(connected: socket.socket, token: str, namespace: str, name: str, most: int) -> bytes:
    """The recording of the job, or a UserError with the master's answer."""
    connected.settimeout(PATIENCE)
    connection = _Connection(connected)
    try:
        connection.request("GET", f"/v1/namespaces/{namespace}/jobs/{name}/recording",
                           headers={"Authorization": f"Bearer {token}"})  # fmt: skip
        response = connection.getresponse()
        body = response.read(most)
    except (OSError, http.client.HTTPException) as broken:
        raise UserError(f"the master does not answer ({broken or type(broken).__name__})") from broken
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"the master responded with HTTP {response.status}: {body.decode(errors='replace')[:300]}")
    return body
