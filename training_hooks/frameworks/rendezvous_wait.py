"""Waits until rank 0 listens, so that the first attempt of the other ranks to connect succeeds.

If torch's store client comes a moment too early, it retries after a random pause of 0.3 to 0.75 s (measured, torch
2.13). After a crash all ranks start within some milliseconds of each other, so that pause is longer than everything
else in a recovery. So a rank first checks every few milliseconds whether the port is open, and after a while leaves the
wait to torch. The store ignores a connection that is closed without a message.
"""

import os
import socket
import time

PATIENCE = 60.0
FIRST, LAST = 0.002, 0.05
CONNECT = 1.0


def is_by_environment(arguments, options):
    """Whether init_process_group will use the rendezvous from the environment."""
    method = options.get("init_method", arguments[1] if len(arguments) > 1 else None)
    store = options.get("store", arguments[5] if len(arguments) > 5 else None)
    return store is None and (method is None or str(method).startswith("env://"))


def wait(environ):
    """Returns once a process listens at the rendezvous, or if waiting here is useless."""
    place = _place(environ)
    if place is None:
        return
    until, pause = time.monotonic() + PATIENCE, FIRST
    while not _is_open(place) and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, LAST)


def _place(environ):
    """(address, port) of rank 0, or None if this is rank 0 itself or no address is given."""
    try:
        rank, port = int(environ["RANK"]), int(environ["MASTER_PORT"])
        return (environ["MASTER_ADDR"], port) if rank > 0 else None
    except (KeyError, ValueError):
        return None


def _is_open(place):
    try:
        socket.create_connection(place, CONNECT).close()
        return True
    except OSError:
        return False


def prepare(arguments, options):
    """Called before init_process_group."""
    if is_by_environment(arguments, options):
        wait(os.environ)
