"""Reads the settings of a replica of the cluster's master from its environment."""

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
"""Default of `Settings.alone_after` in seconds, longer than any change of leader takes."""
SIDECARS_PORT, WEBHOOK_PORT, HTTP_PORT = 7070, 8443, 8080
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
CLIENT_CA = "OUTRIDER_WEBHOOK_CLIENT_CA"
ALL, MASTER, WEBHOOK = "all", "master", "webhook"
"""What a replica serves: today's Deployments serve one of the last two, those from before docs/adr/0031 both."""


@dataclass(frozen=True, slots=True)
class Settings:
    pod: str
    namespace: str
    identity: str
    """Identity of this process in the Lease; a restarted container has another one."""
    image: str
    """Image of the sidecars and of the master itself."""
    pull_policy: str
    endpoint: str
    """Endpoint at which sidecars reach the leading master."""
    journals: Path
    sidecars_port: int
    webhook_port: int
    http_port: int
    log: str
    alone_after: float = ALONE_AFTER
    """Seconds without a master after which an eligible pod starts training on its own (docs/adr/0028)."""
    mode: str = SUPERVISE
    """Mode of all jobs, one of `modes.MODES`."""
    max_members: int = MEMBERS
    """Most members of one job."""
    serves: str = ALL
    """What this replica serves: `ALL`, `MASTER` or `WEBHOOK`."""
    pull_secret: str = ""
    """Name of the image pull secret for the sidecars, in each pod's own namespace; empty: none is needed."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that are watched; empty: all but those of the control plane."""
    webhook_client_cas: str = ""
    """CAs (PEM) of which a client of the webhook must have a certificate; empty: any client is answered."""


def read(environment: Environment) -> Settings:
    """Reads the settings. Raises WrongSetting, which names the variable and its allowed values."""
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
    """The CA bundle as ASCII: comments in it may have other characters, certificates do not."""
    path = environment.text(CLIENT_CA, "")
    if not path:
        return ""
    found = environment.content(CLIENT_CA).encode("ascii", "replace").decode()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError) as error:
        raise WrongSetting(f"{CLIENT_CA}={path!r}: must be a file of CA certificates in PEM: {error}") from error
    return found


def _namespaces(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in found:
        if not NAMESPACE.fullmatch(name) or name in CONTROL_PLANE:
            raise WrongSetting(
                f"OUTRIDER_NAMESPACES={text!r}: {name!r} must be the name of a namespace, and not one of "
                f"{', '.join(CONTROL_PLANE)}; separate several namespaces by commas"
            )
    return found
