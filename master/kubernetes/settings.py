"""What a replica of the cluster's master is told at its start."""

from __future__ import annotations

import re
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from outrider.master.core.k8s.values.limits import MEMBERS, MOST_MEMBERS
from outrider.master.core.k8s.values.modes import MODES, SETTING, SUPERVISE
from outrider.master.core.k8s.values.names import CONTROL_PLANE
from outrider.runtime.settings import Environment, WrongSetting

ALONE_AFTER = 600.0
"""Longer than any change of leader takes."""
SIDECARS_PORT, WEBHOOK_PORT, HTTP_PORT = 7070, 8443, 8080
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
CLIENT_CA = "OUTRIDER_WEBHOOK_CLIENT_CA"
ALL, MASTER, WEBHOOK = "all", "master", "webhook"
"""What a replica serves: each Deployment of today has one of the two, those from before docs/adr/0031 had both."""


@dataclass(frozen=True, slots=True)
class Settings:
    pod: str
    namespace: str
    identity: str
    """Of this process: a restarted container is another one."""
    image: str
    """Of the sidecars, as of the master itself."""
    pull_policy: str
    endpoint: str
    """Where sidecars find the master that leads."""
    journals: Path
    sidecars_port: int
    webhook_port: int
    http_port: int
    log: str
    alone_after: float = ALONE_AFTER
    """Seconds without a master after which a pod that forms its world by itself begins (docs/adr/0028)."""
    mode: str = SUPERVISE
    """One of `modes.MODES`, for all jobs."""
    max_members: int = MEMBERS
    """Of one job."""
    serves: str = ALL
    pull_secret: str = ""
    """What pulls the image of the sidecars, in each pod's own namespace; empty: nothing is needed."""
    namespaces: tuple[str, ...] = ()
    """The only ones that are looked at; empty: all but those of the control plane."""
    webhook_client_cas: str = ""
    """PEM: the webhook answers only who has a certificate of one of these; empty: anybody."""


def read(environment: Environment) -> Settings:
    """Raises WrongSetting, which names the variable and says what it may be."""
    namespace = environment.text("POD_NAMESPACE", what="the namespace of the master's pod")
    pod = environment.text("POD_NAME", what="the name of the master's pod")
    port = environment.integer("OUTRIDER_SIDECARS_PORT", SIDECARS_PORT, low=1, high=65535)
    return Settings(
        pod=pod,
        namespace=namespace,
        identity=f"{pod}-{secrets.token_hex(4)}",
        image=environment.text("OUTRIDER_IMAGE", what="the image of the sidecars"),
        pull_policy=environment.choice("OUTRIDER_PULL_POLICY", ("Always", "IfNotPresent", "Never"), "IfNotPresent"),
        endpoint=environment.text("OUTRIDER_ENDPOINT", f"tcp://outrider-master.{namespace}.svc:{port}"),
        journals=environment.folder("OUTRIDER_JOURNALS", "/tmp"),
        sidecars_port=port,
        webhook_port=environment.integer("OUTRIDER_WEBHOOK_PORT", WEBHOOK_PORT, low=1, high=65535),
        http_port=environment.integer("OUTRIDER_HTTP_PORT", HTTP_PORT, low=1, high=65535),
        log=environment.choice("OUTRIDER_LOG", ("json", "text"), "json"),
        alone_after=environment.seconds("OUTRIDER_ALONE_AFTER", ALONE_AFTER, low=1.0),
        mode=environment.choice(SETTING, MODES, SUPERVISE),
        max_members=environment.integer("OUTRIDER_MAX_MEMBERS", MEMBERS, low=1, high=MOST_MEMBERS),
        serves=environment.choice("OUTRIDER_SERVES", (ALL, MASTER, WEBHOOK), ALL),
        pull_secret=environment.text("OUTRIDER_PULL_SECRET", ""),
        namespaces=_namespaces(environment.text("OUTRIDER_NAMESPACES", "")),
        webhook_client_cas=_client_cas(environment),
    )


def _client_cas(environment: Environment) -> str:
    """A bundle's comments may have any characters; the certificates themselves have ASCII alone."""
    path = environment.text(CLIENT_CA, "")
    if not path:
        return ""
    found = environment.content(CLIENT_CA).encode("ascii", "replace").decode()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError) as error:
        raise WrongSetting(f"{CLIENT_CA}={path!r}: must be a file with certificates of CAs in PEM: {error}") from error
    return found


def _namespaces(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in found:
        if not NAMESPACE.fullmatch(name) or name in CONTROL_PLANE:
            raise WrongSetting(
                f"OUTRIDER_NAMESPACES={text!r}: {name!r} must be the name of a namespace, with commas between several, "
                f"and none of {', '.join(CONTROL_PLANE)}"
            )
    return found
