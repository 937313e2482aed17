"""Signals as an event of a selector loop. SIGCHLD only wakes it, and what asks for the end is kept until it is
taken."""

import signal
import socket

CAUGHT = (signal.SIGTERM, signal.SIGINT)


class Wakeup:
    """`socket` becomes readable with each signal, once `catch` was called."""

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
        """The signal that asks for the end and has come since the last call, 0 where none has."""
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
    """The signals as a fresh process has them."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *CAUGHT):
        signal.signal(number, signal.SIG_DFL)
