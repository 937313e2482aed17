"""Datagrams between a worker process and its template or launcher, over unix sockets in the member's volume.

The sockets have paths, because under a launcher any process may be the parent of a worker. The template or launcher
binds `channel/up`; a worker process binds `channel/<local rank>` once it listens. Sockets are reached through the
folder's descriptor, so the length of the volume's path does not matter. No call waits: a datagram that does not fit is
dropped.
"""

import json
import os
import socket

LARGEST = 1 << 17


def folder_of(volume):
    folder = os.path.join(volume, "channel")
    os.makedirs(folder, exist_ok=True)
    return folder


class Channel:
    """One end. `name` is `up` or a local rank; None for an end that only sends."""

    def __init__(self, volume, name=None):
        self.folder = os.open(folder_of(volume), os.O_PATH | os.O_CLOEXEC)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        if name is not None:
            self.bind(name)

    def _path(self, name):
        return "/proc/self/fd/%d/%s" % (self.folder, name)

    def bind(self, name):
        try:
            os.unlink(self._path(name))
        except OSError:
            pass
        self.socket.bind(self._path(name))

    def fileno(self):
        return self.socket.fileno()

    def send(self, name, message):
        """Sends a datagram; returns whether it is in the other end's queue."""
        try:
            self.socket.sendto(json.dumps(message).encode(), self._path(name))
            return True
        except (OSError, ValueError):
            return False

    def hear(self):
        """The next message, or None if there is none."""
        while True:
            try:
                message = json.loads(self.socket.recv(LARGEST).decode())
            except OSError:
                return None
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    def close(self):
        self.socket.close()
        os.close(self.folder)
