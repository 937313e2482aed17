"""Unix sockets: checks the length of their path, and finds the process on the other side.

`sun_path` has 107 bytes and a final zero; a longer path fails deep inside a library with an error that does not name
it. So callers check the path before they create a socket or connect to it.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

LONGEST_PATH = 107


class SocketPathTooLong(Exception):
    """A socket path is too long; the message has the path, its length, and what to change."""


def checked_path(path: Path) -> str:
    """The path as text; SocketPathTooLong if the kernel would not accept it."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise SocketPathTooLong(
            f"the socket path {path} has {length} bytes, but a unix socket takes {LONGEST_PATH}: "
            "choose a shorter folder (locally: set OUTRIDER_HOME to a short path)"
        )
    return str(path)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that made the connection, according to the kernel. Its pid is 0 if it is in a pid namespace that is
    not visible here."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return Peer(*struct.unpack("3i", raw))


def listening_socket(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket that listens on `path`. It replaces a stale socket, but never another kind of file."""
    name = checked_path(path)
    if path.is_socket():
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(name)
        path.chmod(mode)
        listening.listen(64)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"the socket {path} cannot be created: {error.strerror}") from error
    return listening
