"""The all-gather of a node check: each member of a group sends its block to every other and receives theirs.

It uses plain sockets, so that every wait has an end and no library is needed; the best of several runs counts. The
member that is earlier in the order listens, the later one connects, and both name their round: a connection of another
round, or of a foreign process, is dropped.
"""

import errno
import json
import select
import socket
import threading
import time

BLOCK, REPEATS = 8 << 20, 4
MEET_SECONDS = 4.0
"""Seconds to wait for the other member's probe, whose order may have come later."""
READY_SECONDS = 15.0
"""Seconds to wait for the other member's matmul, in which a fresh Python imports torch."""
GATHER_SECONDS = 10.0
WORD_SECONDS = 2.0
WORD = 256


class PortInUse(Exception):
    pass


class Meeting:
    """The connections of one member in one round. `errors` has the reason for each missing connection."""

    def __init__(self, order):
        self.round, self.member = order["round"], order["member"]
        self.peers = [(peer["member"], peer["address"], peer["port"]) for peer in order.get("peers") or ()]
        self.awaited = set(order.get("awaited") or ())
        self.sockets, self.errors = {}, {}
        self.listener = self._listen(order["port"]) if self.awaited else None

    def _listen(self, port):
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            return socket.create_server(("", port), family=family, backlog=8, dualstack_ipv6=both)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse("port %d is taken by another process" % port)
            raise

    def meet(self, seconds=MEET_SECONDS):
        """Connects to all members at once, so that in a group of three a missing member does not block the other."""
        until = time.monotonic() + seconds
        ways = [threading.Thread(target=self._come_to, args=(*peer, until, seconds)) for peer in self.peers]
        for way in ways:
            way.start()
        while self.awaited - set(self.sockets) and time.monotonic() < until:
            self._take_one(until)
        for member in self.awaited - set(self.sockets):
            self.errors[member] = "it did not connect within %g s" % seconds
        for way in ways:
            way.join()

    def _come_to(self, member, address, port, until, seconds):
        try:
            self.sockets[member] = self._reach(address, port, until)
        except OSError as error:
            self.errors[member] = "%s:%d: %s" % (address, port, reason(error, seconds))

    def _reach(self, address, port, until):
        """Retries until the other member listens."""
        while True:
            connection = None
            try:
                connection = socket.create_connection((address, port), max(0.05, until - time.monotonic()))
                self._say_who(connection)
                if self._hear_who(connection) is not None:
                    return connection
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another round is measured there")
            except OSError as error:
                if connection is not None:
                    connection.close()
                if time.monotonic() >= until or isinstance(error, socket.timeout):
                    raise
                time.sleep(0.02)

    def _take_one(self, until):
        self.listener.settimeout(max(0.01, until - time.monotonic()))
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        who = None
        try:
            connection.settimeout(WORD_SECONDS)
            who = self._hear_who(connection)
            if who in self.awaited:
                self._say_who(connection)
                self.sockets[who] = connection
                return
        except OSError:
            pass
        connection.close()

    def _say_who(self, connection):
        words = json.dumps({"check_round": self.round, "from": self.member}).encode()
        connection.sendall(words.ljust(WORD))

    def _hear_who(self, connection):
        words = receive(connection, WORD)
        try:
            reply = json.loads(words.decode())
            return reply["from"] if reply["check_round"] == self.round else None
        except (ValueError, KeyError, TypeError):
            return None

    def gather(self):
        """{"member", "seconds", "error"} for each member of the group, in an order without circular waits."""
        found = []
        for member in [member for member, _, _ in self.peers] + sorted(self.awaited):
            error, seconds = self.errors.get(member, ""), 0.0
            if not error:
                try:
                    seconds = exchange(self.sockets[member])
                except OSError as problem:
                    error = reason(problem, GATHER_SECONDS)
            found.append({"member": member, "seconds": seconds, "error": error})
        return found

    def close(self):
        for connection in list(self.sockets.values()) + [self.listener]:
            if connection is not None:
                connection.close()


def exchange(connection):
    """Seconds of the best of several exchanges."""
    best, block = float("inf"), bytes(BLOCK)
    _agree(connection, READY_SECONDS)
    for _ in range(REPEATS):
        _agree(connection, GATHER_SECONDS)
        began = time.perf_counter()
        _pump([(connection, block)], GATHER_SECONDS)
        best = min(best, time.perf_counter() - began)
    _agree(connection, GATHER_SECONDS)
    return best


def alone(address):
    """The same with this member itself, over its own address."""
    best, block = float("inf"), bytes(BLOCK)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        one = socket.create_connection(listener.getsockname()[:2], MEET_SECONDS)
        listener.settimeout(MEET_SECONDS)
        two, _ = listener.accept()
    with one, two:
        for _ in range(REPEATS):
            began = time.perf_counter()
            _pump([(one, block), (two, block)], GATHER_SECONDS)
            best = min(best, time.perf_counter() - began)
    return best


def _agree(connection, seconds):
    """Waits until both sides are ready."""
    connection.settimeout(seconds)
    connection.sendall(b"!")
    receive(connection, 1)


def receive(connection, count):
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionResetError(errno.ECONNRESET, "the other side closed the connection")
        data += chunk
    return data


def _pump(ends, seconds):
    """Sends a block to each connection while it receives as much."""
    until = time.monotonic() + seconds
    left = {end.fileno(): [end, memoryview(block), len(block)] for end, block in ends}
    scratch = bytearray(1 << 20)
    for end, _ in ends:
        end.setblocking(False)
    while left:
        pause = until - time.monotonic()
        reading = [fd for fd, (_, _, missing) in left.items() if missing]
        writing = [fd for fd, (_, rest, _) in left.items() if rest]
        readable, writable, _ = select.select(reading, writing, [], max(0.0, pause))
        if not readable and not writable:
            raise socket.timeout("timed out")
        for fd in readable:
            count = left[fd][0].recv_into(scratch, min(len(scratch), left[fd][2]))
            if not count:
                raise ConnectionResetError(errno.ECONNRESET, "the other side closed the connection")
            left[fd][2] -= count
        for fd in writable:
            left[fd][1] = left[fd][1][left[fd][0].send(left[fd][1]) :]
        left = {fd: each for fd, each in left.items() if each[1] or each[2]}


def reason(error, seconds):
    if isinstance(error, socket.timeout):
        return "no answer within %g s" % seconds
    return error.strerror or str(error) or type(error).__name__
