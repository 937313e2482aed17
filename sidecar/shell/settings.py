"""Reads a sidecar's settings from its environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.runtime.settings import Environment, WrongSetting
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role


@dataclass(frozen=True, slots=True)
class Settings:
    job: JobName
    member: MemberId
    role: Role
    rank_index: RankIndex | None
    """Rank index of the member; None: a spare."""
    uid: PodUid
    folder: Path
    nproc: int
    master: str
    """Endpoint of the master, `tcp://host:port`."""
    master_key: str
    """CURVE public key of the master in Z85."""
    token: str
    address: str
    log: str
    platform: str
    lifeline: int | None
    """Descriptor that reads end of file when the owner of the job is gone (local only)."""
    grace: float
    """Seconds between SIGTERM and SIGKILL of this member."""
    ends_as_trainer: bool
    """Whether the sidecar ends with the trainer's exit code: a list of pods shows one container's, maybe this one's."""
    is_native: bool
    """Whether this is a native sidecar, which gets SIGTERM after the trainer's end (docs/adr/0026)."""
    http_port: int | None
    token_file: Path
    alone_after: float | None
    """Seconds without any message of a master after which the command runs as without Outrider; None: never."""
    done_after: float
    """Seconds that a member whose worker processes have all ended with 0 waits for a master's Finish."""
    gpus: tuple[str, ...]
    """CUDA_VISIBLE_DEVICES by rank index, if local members share the GPUs of their machine; otherwise empty."""

    def token_now(self) -> str:
        """The token that the file contains now; the one from the start if the file cannot be read."""
        try:
            return self.token_file.read_text(encoding="utf-8").strip() or self.token
        except (OSError, UnicodeDecodeError):
            return self.token


def read(environment: Environment) -> Settings:
    """Reads the settings. Raises WrongSetting, which names the variable and its allowed values."""
    rank_index = environment.optional_integer("OUTRIDER_RANK_INDEX")
    return Settings(
        job=JobName(environment.text("OUTRIDER_JOB", what="the job's name")),
        member=MemberId(environment.text("OUTRIDER_MEMBER", what="the member's id, as worker-4")),
        role=Role(environment.text("OUTRIDER_ROLE", "worker").lower()),
        rank_index=None if rank_index is None else RankIndex(rank_index),
        uid=PodUid(environment.text("OUTRIDER_POD_UID", what="the pod's UID")),
        folder=environment.folder("OUTRIDER_DIR"),
        nproc=environment.integer("OUTRIDER_NPROC", 1, low=1, high=1024),
        master=_endpoint(environment),
        master_key=_key(environment),
        token=environment.content("OUTRIDER_TOKEN_FILE"),
        address=environment.text("OUTRIDER_ADDRESS", "127.0.0.1"),
        log=environment.choice("OUTRIDER_LOG", ("json", "text"), "text"),
        platform=environment.choice("OUTRIDER_PLATFORM", ("local", "kubernetes"), "local"),
        lifeline=environment.optional_integer("OUTRIDER_LIFELINE_FD", low=3, high=1 << 20),
        grace=environment.seconds("OUTRIDER_GRACE", 30.0),
        ends_as_trainer=environment.choice("OUTRIDER_ENDS_AS", ("well", "trainer"), "well") == "trainer",
        is_native=environment.choice("OUTRIDER_SIDECAR", ("container", "native"), "container") == "native",
        http_port=environment.optional_integer("OUTRIDER_HTTP_PORT", low=1, high=65535),
        alone_after=environment.optional_seconds("OUTRIDER_ALONE_AFTER"),
        done_after=environment.seconds("OUTRIDER_DONE_AFTER", 600.0),
        token_file=Path(environment.text("OUTRIDER_TOKEN_FILE", what="a file")),
        gpus=_gpus(environment),
    )


def _gpus(environment: Environment) -> tuple[str, ...]:
    """The shares of local members; empty in a pod, whose container has its own GPUs."""
    if environment.choice("OUTRIDER_PLATFORM", ("local", "kubernetes"), "local") != "local":
        return ()
    value = environment.text("OUTRIDER_GPUS", "")
    return tuple(value.split(";")) if value else ()


def _endpoint(environment: Environment) -> str:
    what = "tcp://host:port"
    value = environment.text("OUTRIDER_MASTER", what=what)
    host, _, port = value.removeprefix("tcp://").rpartition(":")
    if not value.startswith("tcp://") or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongSetting(f"OUTRIDER_MASTER={value!r}: must be {what}")
    return value


def _key(environment: Environment) -> str:
    value = environment.text("OUTRIDER_MASTER_KEY", what="a CURVE public key of 40 characters")
    if len(value) != 40 or not value.isascii():
        raise WrongSetting(f"OUTRIDER_MASTER_KEY={value!r}: must be a CURVE public key of 40 characters")
    return value
