"""Reads a local master's settings from its environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.master.core.spec import JobSpec
from outrider.master.service.spec_json import spec_of
from outrider.runtime.curve_keys import KeyPair, key_pair_of
from outrider.runtime.settings import Environment, WrongSetting
from outrider.wire.ids import JobName


@dataclass(frozen=True, slots=True)
class Settings:
    job: JobName
    job_uid: str
    """Mark of every process of this run of the job; empty if none are to be killed at its end."""
    folder: Path
    spec: JobSpec
    bind: str
    keys: KeyPair
    token: str
    node_socket: Path
    lifeline: int | None
    log: str


def platform_of(environment: Environment) -> str:
    return environment.choice("OUTRIDER_PLATFORM", ("local", "kubernetes"), "local")


def read(environment: Environment) -> Settings:
    """Reads the settings. Raises WrongSetting, which names the variable and its allowed values."""
    platform_of(environment)
    spec = spec_of(environment.document("OUTRIDER_SPEC"))
    return Settings(
        job=JobName(environment.text("OUTRIDER_JOB", spec.name)),
        job_uid=environment.text("OUTRIDER_JOB_UID", ""),
        folder=environment.folder("OUTRIDER_JOB_DIR"),
        spec=spec,
        bind=environment.text("OUTRIDER_BIND", "tcp://127.0.0.1:*"),
        keys=_keys(environment),
        token=environment.content("OUTRIDER_TOKEN_FILE"),
        node_socket=Path(environment.text("OUTRIDER_NODE_SOCKET", what="the path of the node's socket")),
        lifeline=environment.optional_integer("OUTRIDER_LIFELINE_FD", low=3, high=1 << 20),
        log=environment.choice("OUTRIDER_LOG", ("json", "text"), "text"),
    )


def _keys(environment: Environment) -> KeyPair:
    try:
        return key_pair_of(environment.content("OUTRIDER_MASTER_KEY_FILE"))
    except ValueError as error:
        raise WrongSetting(f"OUTRIDER_MASTER_KEY_FILE: {error}") from error
