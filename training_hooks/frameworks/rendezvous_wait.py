"""Waits until rank 0 listens, so that the other ranks' first try to reach it succeeds.

torch's store client that comes a moment too early tries again after a random pause of 0.3 to 0.75 s (measured, torch
2.13), and after a crash all ranks come within some milliseconds of each other: more time than everything else in a
recovery. So a rank looks first whether the port is open, every few milliseconds, and gives way to torch's own patience
after a while. A connection that is closed without a word is nothing to the store.
"""

import os
import socket
import time

PATIENCE = 60.0
FIRST, LAST = 0.002, 0.05
CONNECT = 1.0


def is_by_environment(arguments, options):
    """Whether init_process_group will meet the others where the environment says."""
    method = options.get("init_method", arguments[1] if len(arguments) > 1 else None)
    store = options.get("store", arguments[5] if len(arguments) > 5 else None)
    return store is None and (method is None or str(method).startswith("env://"))


def wait(environ):
    """Returns once somebody listens at the rendezvous, or it is no use to wait here."""
    place = _place(environ)
    if place is None:
        return
    until, pause = time.monotonic() + PATIENCE, FIRST
    while not _is_open(place) and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, LAST)


def _place(environ):
    """(address, port) of rank 0, None where this is rank 0 itself or no such place is named."""
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
    """Before init_process_group."""
    if is_by_environment(arguments, options):
        wait(os.environ)
