"""Between a worker process and its template or launcher: datagrams over unix sockets in the member's volume.

Sockets by path, because under a launcher the worker process is anyone's child. `channel/up` is bound by template or
launcher; a worker process binds `channel/<local rank>` once it listens. They are reached through the folder's
descriptor, so the length of the volume's path does not matter. Nothing here waits: what does not fit is dropped.
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
    """One end; `name` is `up` or a local rank, None for one that only tells."""

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

    def tell(self, name, message):
        """True where it was delivered into the other's queue."""
        try:
            self.socket.sendto(json.dumps(message).encode(), self._path(name))
            return True
        except (OSError, ValueError):
            return False

    def hear(self):
        """The next message, None where there is none."""
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
