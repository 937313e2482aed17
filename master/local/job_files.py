"""The folder of a local job (docs/contracts.md §6).

One command at a time owns it, removes the last job's files, and writes this job's secrets.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path

from outrider.runtime.unix import checked_path
from outrider.wire.ids import Role

LEFTOVERS = (
    "status.json", "events.jsonl", "progress.jsonl", "loss.jsonl", "journal.txt", "recording.jsonl.gz",
    "recording-failed.jsonl.gz", "command.json", "master.sock", "node.sock", "master.log", "members", "logs",
)  # fmt: skip


class FolderError(Exception):
    """The folder cannot be used; the message, for the user, says why."""


class JobFolder:
    """A job's folder, which this process owns from `prepare` to `close`."""

    def __init__(self, path: Path, role: Role) -> None:
        self.path, self.role = path, role
        self.master_log = self._lock = -1

    def prepare(self, token: str, master_key: str, spec: str) -> None:
        """Locks, empties and fills the folder.

        Raises FolderError, and runtime.unix.SocketPathTooLong if the paths of members' sockets would be too long.
        """
        checked_path(self.path / "members" / f"{self.role}-99999" / "agent.sock")
        try:
            _make(self.path)
            self._take_lock(self.path / "lock")
            for left in (*map(self.path.joinpath, LEFTOVERS), *self.path.glob("history-*.json*")):
                _remove(left)
            (self.path / "members").mkdir(mode=0o700)
            _write_secret(self.path / "token", token)
            _write_secret(self.path / "master.key", master_key)
            (self.path / "spec.json").write_text(spec + "\n")
            self.master_log = os.open(
                self.path / "master.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise FolderError(f"the job's folder {self.path} cannot be used: {error.strerror}{_at(error)}") from error

    def _take_lock(self, path: Path) -> None:
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            holder = os.read(self._lock, 20).decode(errors="replace").strip()
            raise FolderError(f"a job of this name is already running: process {holder} holds {path}") from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Closes the files; the lock last, because until it is free no other process may touch the folder."""
        for descriptor in (self.master_log, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self.master_log = self._lock = -1


def _make(path: Path) -> None:
    """Creates the folder, with `jobs` and the home above it; refuses any that another user may have created (/tmp)."""
    ours = [path.parent.parent, path.parent, path] if path.parent.name == "jobs" else [path]
    ours[0].parent.mkdir(parents=True, exist_ok=True)
    for folder in ours:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if why := _why_not_ours(folder.lstat()):
            where = f"the job's folder {path} cannot be used: {folder} {why}"
            raise FolderError(f"{where}; set OUTRIDER_HOME to use another folder for jobs")
        folder.chmod(0o700)


def _why_not_ours(found: os.stat_result) -> str:
    """Why the folder is unsafe: another user who can write there could plant a token and sockets; empty: it is safe."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.geteuid():
        return f"belongs to the user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _at(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
