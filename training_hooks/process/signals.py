"""Signals as an event of a selector loop.

SIGCHLD only wakes the loop; a signal that requests the end is kept until the loop takes it.
"""

import signal
import socket

CAUGHT = (signal.SIGTERM, signal.SIGINT)


class Wakeup:
    """After `catch`, `socket` becomes readable with each signal."""

    def __init__(self):
        self.socket, self._writing = socket.socketpair()
        self._number = 0

    def catch(self):
        for end in (self.socket, self._writing):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in CAUGHT:
            signal.signal(number, self._keep)

    def _keep(self, number, frame):
        self._number = number

    def take(self):
        """The terminating signal received since the last call, or 0 if there was none."""
        try:
            while self.socket.recv(4096):
                pass
        except OSError:
            pass
        number, self._number = self._number, 0
        return number

    def close(self):
        self.socket.close()
        self._writing.close()


def let_go():
    """Sets the signals as in a fresh process."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *CAUGHT):
        signal.signal(number, signal.SIG_DFL)
