"""Where the local jobs are, which of them run, and whether a job can live where it is asked to.

A job is a folder (docs/contracts.md, 6). It runs as long as somebody holds the lock in it; what it left behind stays
readable until the next job of its name. Checks that a start would trip over later (a folder that cannot be written, a
socket path that the kernel would cut) are made here first, so that a refused start leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from outrider.cli.errors import UserError
from outrider.runtime.unix import LONGEST_PATH

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
"""A DNS label, because the same job's pods are named after it in a cluster."""

JOBS_NAMED = 8
"""In an error; `outrider status` shows all."""

LONGEST_SOCKET = "members/worker-99999/agent.sock"


def home(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """The folder of the user's jobs: OUTRIDER_HOME, else the session's run-time folder, else a temporary one."""
    if chosen := environ.get("OUTRIDER_HOME"):
        return here() / chosen
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "outrider"
    return Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}"


def here() -> Path:
    """The current folder, or an error where it has been deleted: nothing relative means anything then."""
    try:
        return Path.cwd()
    except OSError as gone:
        raise UserError(f"the current folder does not exist any more ({gone.strerror}); change to another") from gone


def absolute(path: Path) -> Path:
    """A path that the user gave; a relative one begins at the current folder."""
    return here() / path


def job_folder(job: str) -> Path:
    """Where a job of that name is, whether it exists or not."""
    return home() / "jobs" / job


def jobs() -> list[str]:
    """Every job that left something here, sorted."""
    try:
        return sorted(entry.name for entry in (home() / "jobs").iterdir() if (entry / "lock").exists())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as refused:
        raise UserError(f"the jobs' folder {home() / 'jobs'} cannot be read: {refused.strerror}") from refused


def running_jobs() -> list[str]:
    """The jobs whose lock is held."""
    return [job for job in jobs() if is_running(job)]


def is_running(job: str) -> bool:
    """Whether somebody holds the job's lock.

    Read from /proc/locks: trying the lock would hold it for a moment, and a start at that moment would be refused.
    Inode numbers repeat between file systems, and so the holder must be the process that the lock names.
    """
    path = job_folder(job) / "lock"
    try:
        inode = path.stat().st_ino
        holder = path.read_bytes()[:20].decode(errors="replace").strip()
        table = Path("/proc/locks").read_text()
    except OSError:
        return False
    locks = (line.split() for line in table.splitlines() if "FLOCK" in line)
    return any(
        any(field.endswith(f":{inode}") for field in fields) and (not holder or holder in fields) for fields in locks
    )


def existing(job: str) -> Path:
    """The folder of a job that exists; else an error that names those that do."""
    return job_folder(_found(job))


def _found(job: str) -> str:
    """Its name as it was given, or in the letters that a name may have."""
    everything = jobs()
    for name in (job, in_its_letters(job)):
        if name in everything:
            return name
    raise UserError(f"there is no job {job!r} in {home()}; {_known()}")


def the_job(job: str | None) -> str:
    """The job that was named, else the only one that runs."""
    if job is not None:
        return _found(job)
    candidates = running_jobs()
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise UserError(f"say which job: {', '.join(candidates)} are running")
    raise UserError(f"no job is running in {home()}; {_known()}")


def _known() -> str:
    """The jobs that there are: those that run, then the latest of the others, as many as one can read."""
    everything = sorted(jobs(), key=lambda job: (not is_running(job), -_begun(job)))
    if not everything:
        return "nothing was ever run there (OUTRIDER_HOME names another folder)"
    named = [f"{job} ({'running' if is_running(job) else 'ended'})" for job in everything[:JOBS_NAMED]]
    more = len(everything) - len(named)
    return (
        "there are: "
        + ", ".join(named)
        + (f", and {more} more (outrider clean --all removes ended ones)" if more else "")
    )


def _begun(job: str) -> float:
    try:
        return (job_folder(job) / "lock").stat().st_mtime
    except OSError:
        return 0.0


def checked_name(job: str) -> str:
    """A job's name in the letters that it may have, or an error that says what it may be."""
    name = job if NAME.match(job) else in_its_letters(job)
    if not NAME.match(name):
        raise UserError(f"--job {job!r}: a name has letters, digits and '-', at most 63, and not only '-'")
    return name


def in_its_letters(text: str) -> str:
    """As a DNS label has them; empty where no letter of it may be in one."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def name_from(script: str) -> str:
    """A job's name made of a script's or a module's: its last part, in the letters that a name may have, and free."""
    stem = Path(script).name.removesuffix(".py").rpartition(".")[2]
    plain = in_its_letters(stem)[:40].strip("-") or "job"
    taken, number, name = set(running_jobs()), 1, plain
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def check_writable(folder: Path, flag: str) -> None:
    """Make sure that files can be made in `folder`, which may not exist yet. Nothing is left behind."""
    nearest = absolute(folder)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise UserError(f"{flag} {folder}: {nearest} is no folder")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as refused:
        raise UserError(f"{flag} {folder}: cannot be written ({refused.strerror}: {nearest})") from refused


def check_free(job: str) -> None:
    """Make sure that no job of that name runs; whoever starts one takes the lock and so decides for good."""
    if is_running(job):
        raise already_runs(job)


def already_runs(job: str) -> UserError:
    """The refusal of a second job of one name."""
    try:
        holder = (job_folder(job) / "lock").read_text().strip()
    except OSError:
        holder = ""
    by = f" (pid {holder})" if holder else ""
    return UserError(f"a job {job!r} is running already{by}; choose another --job name, or end it: outrider stop {job}")


def check_socket_paths(job: str) -> None:
    """Make sure that the kernel takes the longest socket path which the job will need."""
    path = job_folder(job) / LONGEST_SOCKET
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise UserError(
            f"the job's folder {job_folder(job)} is too deep: a socket path may have {LONGEST_PATH} bytes, "
            f"{path} would have {length}; set OUTRIDER_HOME to a shorter folder, or give a shorter --job name"
        )
