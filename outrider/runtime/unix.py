"""Unix sockets: a path that fits, and who is on the other side.

`sun_path` takes 107 bytes and a final zero; what is longer fails deep inside a library with a sentence that names
nothing. So the path is checked first, by whoever makes or joins a socket.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

LONGEST_PATH = 107


class SocketPathTooLong(Exception):
    """The message names the path, its length, and what to change."""


def checked_path(path: Path) -> str:
    """The path as text; SocketPathTooLong where the kernel would not take it."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise SocketPathTooLong(
            f"the socket path {path} has {length} bytes, and a unix socket takes {LONGEST_PATH}: "
            "choose a shorter folder (locally: set OUTRIDER_HOME to a short path)"
        )
    return str(path)


@dataclass(frozen=True, slots=True)
class Peer:
    """Who made the connection, as the kernel says. The pid is 0 where the peer lives in a pid namespace we do not
    see."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return Peer(*struct.unpack("3i", raw))


def listening_socket(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket that listens on `path`, in place of a stale one; never in place of anything that is no socket."""
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
        raise OSError(error.errno, f"the socket {path} cannot be made: {error.strerror}") from error
    return listening
