"""TF_CONFIG for a TensorFlow job without parameter servers (MultiWorkerMirroredStrategy): one worker per rank.

From outside it is unknown whether a script needs the variable, and every rank would need the addresses of all others.
So it is created when it is read, in a rank that has imported TensorFlow and not torch. Each rank takes a port, and they
meet at the generation's rendezvous address, which is otherwise unused then. Rank 0 receives every rank's port, sees its
address, and sends all of them to each rank. A torch job never sees the variable, and one that the user has set is not
changed.

A rank that has read it waits until all ranks have, as it would wait for the strategy's other workers in the next line.
If a rank never does, that is a hang, which is detected like any other.

A rank's port stays bound until all are known, so that two ranks of a machine cannot have the same. It is outside the
range from which the kernel assigns ports, as the rendezvous port is. TensorFlow binds it in the next moment.
"""

import contextlib
import json
import os
import random
import selectors
import socket
import sys
import threading
import time

NAME = "TF_CONFIG"
LOWEST, HIGHEST, TRIES = 10000, 65535, 200
FIRST, LAST = 0.002, 0.1
CONNECT = 5.0
LONGEST = 1 << 10
"""Most bytes of a rank's message; a connection that sends more is not a rank."""


class Place:
    """The address where this rank meets the others; KeyError or ValueError if this process is not a rank."""

    def __init__(self, environ):
        self.rank, self.world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        self.address, self.port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        self.generation = environ["OUTRIDER_GENERATION"]


def offer(worker, current):
    """Creates the variable if this process reads it. `current()` returns the process's worker: a child that the script
    forks has none, and does nothing."""
    if NAME in os.environ or "torch" in sys.modules:
        return
    place, plain, lock = Place(os.environ), type(os.environ), threading.RLock()

    class Watched(plain):
        def __getitem__(self, name):
            if name == NAME:
                look()
            return plain.__getitem__(self, name)

    def look():
        with lock:
            if type(os.environ) is not Watched or current() is not worker or "torch" in sys.modules:
                return
            try:
                if not is_set():
                    os.environ[NAME] = json.dumps(config(meet(place), place.rank))
            except Exception:  # no port is free, or no rank can be reached: TensorFlow runs as without Outrider
                pass
            os.environ.__class__ = plain

    def is_set():
        try:
            return bool(plain.__getitem__(os.environ, NAME))
        except KeyError:
            return False

    os.environ.__class__ = Watched


def config(workers, rank):
    """The value that TensorFlow reads: all workers, and the index of this one."""
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}


def meet(place):
    """The addresses of all ranks, by rank."""
    with bound_port() as port:
        own = port.getsockname()[1]
        if place.world == 1:
            return [named(place.address, own)]
        return gather(place, own) if place.rank == 0 else ask(place, own)


def ask(place, own):
    """Rank 0's answer, once it has the ports of all ranks."""
    line = json.dumps({"generation": place.generation, "rank": place.rank, "port": own}).encode() + b"\n"
    pause = FIRST
    while True:
        try:
            with socket.create_connection((place.address, place.port), CONNECT) as connection:
                connection.settimeout(None)
                connection.sendall(line)
                with connection.makefile("rb") as answer:
                    text = answer.readline()
            if text.endswith(b"\n"):
                return json.loads(text.decode())
        except OSError:  # rank 0 does not listen yet
            pass
        time.sleep(pause)
        pause = min(2 * pause, LAST)


def gather(place, own):
    """Rank 0's side. A connection with another message, or of another generation, gets no answer."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        server = stack.enter_context(listening(place))
        selector.register(server, selectors.EVENT_READ)
        workers, connections = {0: named(place.address, own)}, {}
        while len(workers) < place.world:
            for key, _ in selector.select():
                if key.fileobj is server:
                    connection = stack.enter_context(server.accept()[0])
                    selector.register(connection, selectors.EVENT_READ, bytearray())
                    continue
                rank, port, is_over = heard(key.fileobj, key.data, place)
                if is_over:
                    selector.unregister(key.fileobj)
                if rank is not None:
                    workers[rank] = named(key.fileobj.getpeername()[0], port)
                    connections[rank] = key.fileobj
                elif is_over:
                    key.fileobj.close()
        whole = [workers[rank] for rank in range(place.world)]
        for connection in connections.values():
            with contextlib.suppress(OSError):  # a rank whose connection is lost asks again, or its generation ends
                connection.settimeout(CONNECT)
                connection.sendall(json.dumps(whole).encode() + b"\n")
    return whole


def heard(connection, read, place):
    """(rank, its port, whether the message is complete) from the bytes received so far."""
    try:
        more = connection.recv(LONGEST)
    except OSError:
        more = b""
    read += more
    if not read.endswith(b"\n"):
        return None, None, not more or len(read) > LONGEST
    try:
        message = json.loads(read.decode())
        rank, port = int(message["rank"]), int(message["port"])
        fits = message["generation"] == place.generation and 0 < rank < place.world and 0 < port <= HIGHEST
    except (ValueError, KeyError, TypeError):
        fits = False
    return (rank, port, True) if fits else (None, None, True)


def listening(place):
    server = socket.socket(socket.AF_INET6 if ":" in place.address else socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", place.port))
    server.listen(place.world)
    return server


def named(host, port):
    return ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)


def bound_port():
    """A bound socket with a free port, which cannot be connected to yet."""
    low, high = ephemeral()
    outside = [*range(LOWEST, min(low, HIGHEST + 1)), *range(max(high + 1, LOWEST), HIGHEST + 1)]
    for port in random.sample(outside, min(TRIES, len(outside))) + [0]:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind(("", port))
            return held
        except OSError:
            held.close()
    raise OSError("no port is free")


def ephemeral():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            low, high = file.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999
