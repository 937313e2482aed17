"""TF_CONFIG for a TensorFlow job without parameter servers (MultiWorkerMirroredStrategy): one worker a rank.

Nobody knows from outside whether a script wants it, and every rank would have to be told of all others. So it is made
when it is looked up, in a rank that has imported TensorFlow and not torch: each takes a port, and they meet where the
generation has its rendezvous, which nobody else uses then. Rank 0 hears everybody's port, sees where that came from,
and tells all. A torch job never sees the variable, and one that somebody has set is left as it is.

Who has looked it up waits until all ranks have, as it would for the strategy's other workers in the next line. If one
never does, that is a hang, which is seen and named as any other.

A rank's port stays bound until all are known, so that two ranks of a machine cannot have the same. It is outside the
range from which the kernel gives out ports, as the rendezvous' own is. TensorFlow binds it in the next moment.
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
"""Bytes of what a rank says; who says more is none."""


class Place:
    """Where this rank meets the others; KeyError or ValueError where it is no rank."""

    def __init__(self, environ):
        self.rank, self.world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        self.address, self.port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        self.generation = environ["OUTRIDER_GENERATION"]


def offer(worker, current):
    """Makes it, should this process look for it. `current()` is the process's worker: a child that the script forks is
    none, and leaves it alone."""
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
            except Exception:  # no port is free, nobody can be reached there: TensorFlow goes on as without us
                pass
            os.environ.__class__ = plain

    def is_set():
        try:
            return bool(plain.__getitem__(os.environ, NAME))
        except KeyError:
            return False

    os.environ.__class__ = Watched


def config(workers, rank):
    """What TensorFlow reads: all of them, and which one this is."""
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}


def meet(place):
    """The addresses of all ranks, by rank."""
    with bound_port() as port:
        own = port.getsockname()[1]
        if place.world == 1:
            return [named(place.address, own)]
        return gather(place, own) if place.rank == 0 else ask(place, own)


def ask(place, own):
    """What rank 0 says, once it has heard everybody."""
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
        except OSError:  # it does not listen yet
            pass
        time.sleep(pause)
        pause = min(2 * pause, LAST)


def gather(place, own):
    """Rank 0's side. Who says something else, or is of another generation, is not answered."""
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
            with contextlib.suppress(OSError):  # who is gone asks again, or its generation ends
                connection.settimeout(CONNECT)
                connection.sendall(json.dumps(whole).encode() + b"\n")
    return whole


def heard(connection, read, place):
    """(rank, its port, whether there is no more to hear) of what a connection has said so far."""
    try:
        more = connection.recv(LONGEST)
    except OSError:
        more = b""
    read += more
    if not read.endswith(b"\n"):
        return None, None, not more or len(read) > LONGEST
    try:
        said = json.loads(read.decode())
        rank, port = int(said["rank"]), int(said["port"])
        fits = said["generation"] == place.generation and 0 < rank < place.world and 0 < port <= HIGHEST
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
    """A socket with a free port of its own, which nobody can reach yet."""
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
