"""The line to the sidecar: agent.sock, one JSON object a line, reconnected for ever, never waited for.

The owner (template or launcher) holds it in its selector loop: `due` says when the next attempt to connect is wanted,
`read` gives the orders that have come. A sidecar that is gone, frozen or new must never matter to the training: what is
said while there is none is dropped, and `announce` tells the next one all that is true by then.
"""

import json
import os
import socket
import time

VERSION = 1
LONGEST_LINE = 1 << 20
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0


class Agent:
    """`announce()` returns the lines (dicts) that open every connection, the first one without `outrider`."""

    def __init__(self, folder, announce):
        self.path = os.path.join(folder, "agent.sock")
        self.announce = announce
        self.socket = None
        self.ever_connected = False
        self.refused = ""
        self._outgoing, self._incoming = bytearray(), bytearray()
        self._pause, self._next = FIRST_PAUSE, 0.0

    def fileno(self):
        return self.socket.fileno()

    def due(self, now):
        """Seconds until `connect` is wanted, None while there is a connection."""
        return None if self.socket else max(0.0, self._next - now)

    def connect(self):
        """Tries once; True where a connection was made. Failure only moves the next attempt."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            self._reach(connection)
        except OSError:
            connection.close()
            self._next = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, LAST_PAUSE)
            return False
        self.socket, self.ever_connected = connection, True
        self._outgoing, self._incoming = bytearray(), bytearray()
        first, *others = self.announce()
        self.send(dict(first, outrider=VERSION))
        for line in others:
            self.send(line)
        return self.socket is not None

    def _reach(self, connection):
        """Through the folder's descriptor where the path is longer than a socket's may be."""
        if len(os.fsencode(self.path)) <= 107:
            return connection.connect(self.path)
        folder = os.open(os.path.dirname(self.path), os.O_PATH | os.O_CLOEXEC)
        try:
            return connection.connect("/proc/self/fd/%d/agent.sock" % folder)
        finally:
            os.close(folder)

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None
            self._next = time.monotonic() + self._pause

    def send(self, message):
        """Says it now where there is a connection; True where it is on its way."""
        if not self.socket:
            return False
        self._outgoing += json.dumps(message).encode() + b"\n"
        self.flush()
        return self.socket is not None

    @property
    def wants_to_write(self):
        return bool(self.socket and self._outgoing)

    def flush(self):
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing)]
        except BlockingIOError:
            if len(self._outgoing) > 4 * LONGEST_LINE:
                self.close()
        except OSError:
            self.close()

    def read(self):
        """Every whole line that has come; an end of the line closes it, and so does what is no JSON object."""
        try:
            while True:
                chunk = self.socket.recv(65536)
                if not chunk:
                    self.close()
                    break
                self._incoming += chunk
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        return self._lines()

    def _lines(self):
        messages = []
        while b"\n" in self._incoming:
            line, _, rest = self._incoming.partition(b"\n")
            self._incoming = bytearray(rest)
            message = self._parse(line)
            if message is None:
                self.close()
                return messages
            messages.append(message)
        if len(self._incoming) > LONGEST_LINE:
            self.close()
        return messages

    def _parse(self, line):
        try:
            message = json.loads(line.decode()) if len(line) <= LONGEST_LINE else None
        except ValueError:
            return None
        if not isinstance(message, dict) or "refused" in message:
            self.refused = str(message.get("refused")) if isinstance(message, dict) else ""
            self._pause = LAST_PAUSE
            return None
        if "outrider" in message:
            self._pause = FIRST_PAUSE
        return message
