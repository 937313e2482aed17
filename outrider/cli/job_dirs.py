"""The folders of local jobs: where they are, which jobs run, and whether a new job can start.

A job is a folder (docs/contracts.md, 6). It runs as long as a process holds the lock in it; its files stay readable
until the next job of the same name. Whatever would fail later during the start (a folder without write permission, a
socket path that is too long for the kernel) is checked here first, so that a refused start leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from outrider.cli.errors import UserError
from outrider.runtime.unix import LONGEST_PATH

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
"""The form of a job's name: a DNS label, because in a cluster the pods of the job are named after it."""

JOBS_NAMED = 8
"""The most jobs that an error lists; `outrider status` shows all."""

LONGEST_SOCKET = "members/worker-99999/agent.sock"


def home(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """The folder of the user's jobs: OUTRIDER_HOME, else one in XDG_RUNTIME_DIR, else one for temporary files."""
    if chosen := environ.get("OUTRIDER_HOME"):
        return here() / chosen
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "outrider"
    return Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}"


def here() -> Path:
    """The current folder, or an error if it was deleted, since relative paths have no meaning then."""
    try:
        return Path.cwd()
    except OSError as gone:
        raise UserError(f"the current folder no longer exists ({gone.strerror}); change to another one") from gone


def absolute(path: Path) -> Path:
    """The absolute form of a path that the user gave, relative to the current folder."""
    return here() / path


def job_folder(job: str) -> Path:
    """The folder of a job of that name, whether it exists or not."""
    return home() / "jobs" / job


def jobs() -> list[str]:
    """The names of all jobs with a folder here, sorted."""
    try:
        return sorted(entry.name for entry in (home() / "jobs").iterdir() if (entry / "lock").exists())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as refused:
        raise UserError(f"the folder of the jobs {home() / 'jobs'} cannot be read: {refused.strerror}") from refused


def running_jobs() -> list[str]:
    """The jobs whose lock is held."""
    return [job for job in jobs() if is_running(job)]


def is_running(job: str) -> bool:
    """Whether a process holds the job's lock.

    This reads /proc/locks: trying to lock would hold the lock for a moment, and a start at that moment would be
    refused. Inode numbers repeat between file systems, so the holder must also be the process named in the lock file.
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
    """The folder of a job that exists; else an error that names the existing jobs."""
    return job_folder(_found(job))


def _found(job: str) -> str:
    """The name of an existing job, as given or converted to a valid name."""
    everything = jobs()
    for name in (job, in_its_letters(job)):
        if name in everything:
            return name
    raise UserError(f"job {job!r} not found in {home()}; {_known()}")


def the_job(job: str | None) -> str:
    """The given job, else the only running one."""
    if job is not None:
        return _found(job)
    candidates = running_jobs()
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise UserError(f"several jobs are running, name one of them: {', '.join(candidates)}")
    raise UserError(f"no job is running in {home()}; {_known()}")


def _known() -> str:
    """A list of the existing jobs for an error: running ones first, then the latest others, at most JOBS_NAMED."""
    everything = sorted(jobs(), key=lambda job: (not is_running(job), -_begun(job)))
    if not everything:
        return "no job has ever run there (set OUTRIDER_HOME for another folder)"
    named = [f"{job} ({'running' if is_running(job) else 'ended'})" for job in everything[:JOBS_NAMED]]
    more = len(everything) - len(named)
    return (
        "existing jobs: "
        + ", ".join(named)
        + (f", and {more} more (outrider clean --all removes ended ones)" if more else "")
    )


def _begun(job: str) -> float:
    try:
        return (job_folder(job) / "lock").stat().st_mtime
    except OSError:
        return 0.0


def checked_name(job: str) -> str:
    """The valid form of a job's name, or an error that says what a name must be."""
    name = job if NAME.match(job) else in_its_letters(job)
    if not NAME.match(name):
        raise UserError(f"--job {job!r}: must be at most 63 letters, digits and '-', and not only '-'")
    return name


def in_its_letters(text: str) -> str:
    """`text` in the letters of a DNS label; empty if none of them is allowed there."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def name_from(script: str) -> str:
    """A free and valid name for a job, made of the last part of its script's or module's name."""
    stem = Path(script).name.removesuffix(".py").rpartition(".")[2]
    plain = in_its_letters(stem)[:40].strip("-") or "job"
    taken, number, name = set(running_jobs()), 1, plain
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def check_writable(folder: Path, flag: str) -> None:
    """Make sure that files can be created in `folder`, which may not exist yet. Nothing is left behind."""
    nearest = absolute(folder)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise UserError(f"{flag} {folder}: must be a folder; {nearest} is not one")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as refused:
        raise UserError(f"{flag} {folder}: must be writable ({refused.strerror}: {nearest})") from refused


def check_free(job: str) -> None:
    """Make sure that no job of that name runs. If two start at once, the lock decides later."""
    if is_running(job):
        raise already_runs(job)


def already_runs(job: str) -> UserError:
    """The error for a second job of the same name."""
    try:
        holder = (job_folder(job) / "lock").read_text().strip()
    except OSError:
        holder = ""
    by = f" (pid {holder})" if holder else ""
    return UserError(f"job {job!r} is already running{by}; choose another --job name, or stop it: outrider stop {job}")


def check_socket_paths(job: str) -> None:
    """Make sure that the kernel accepts the longest socket path of the job."""
    path = job_folder(job) / LONGEST_SOCKET
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise UserError(
            f"the path of the job's folder {job_folder(job)} is too long: a socket path may have {LONGEST_PATH} bytes, "
            f"but {path} has {length}; set OUTRIDER_HOME to a shorter folder, or give a shorter --job name"
        )
