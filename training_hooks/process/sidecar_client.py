"""The connection to the sidecar: agent.sock, one JSON object per line, reconnected for ever, never waited for.

The owner (template or launcher) has it in its selector loop: `due` returns the time of the next attempt to connect,
`read` the received orders. A sidecar that has ended, is frozen or is new must never affect training. Messages without a
connection are dropped; `announce` gives the next sidecar the whole current state.
"""

import json
import os
import socket
import time

VERSION = 1
LONGEST_LINE = 1 << 20
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0


class Agent:
    """`announce()` returns the messages (dicts) that open every connection, the first one without `outrider`."""

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
        """Seconds until the next `connect`, or None while there is a connection."""
        return None if self.socket else max(0.0, self._next - now)

    def connect(self):
        """Tries once; returns whether it connected. A failure only delays the next attempt."""
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
        """Connects through the folder's descriptor if the path is longer than a socket address allows."""
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
        """Sends a message if there is a connection; returns whether it is on its way."""
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
        """Every complete line received. The end of the stream closes the connection, and so does a line that is not a
        JSON object."""
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
