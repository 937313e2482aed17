"""Measures how fast this device multiplies: the best of several short matmuls, with torch, numpy or plain Python.

It runs only in a process that is discarded (`nodecheck.probe`): a tensor operation in a template would hang its forks.
The best of several is what the device can do, without momentary disturbances. What the member's own container takes
from it is a share of the time, with pauses (a limit has periods, a load does not always run), so that is the mean of
all. CPU time is measured beside wall time, because members of one machine disturb each other during the check. One
thread is used, and members that see each other's abstract sockets (one machine without network namespaces) take turns.
"""

import os
import socket
import time

from ..telemetry import cpu_contention

REPEATS, LONGEST = 5, 1.5
TURN = b"\0outrider-node-check"
TURN_PATIENCE = 3.0
SLOW = 5


class Wrong(Exception):
    """The device has multiplied, and the product is wrong."""


def measure(local_rank, chaos=""):
    """(kind, wall seconds, CPU seconds, seconds for which the member's own container delayed it); the last two are 0.0
    for a device such as a GPU."""
    kind, multiply = _best_way(local_rank)
    times = SLOW if chaos == "slow" else 1
    turn = None if kind.endswith("cuda") else _take_turn()
    try:
        multiply()
        wall, cpu, held_up = _best(multiply, times)
    finally:
        if turn is not None:
            turn.close()
    return (kind, wall, 0.0, 0.0) if kind.endswith("cuda") else (kind, wall, cpu, held_up)


def _best(multiply, times):
    """(best wall seconds, best CPU seconds, mean seconds that the member's own container took from one)."""
    container = cpu_contention.Container()
    walls, cpus, began, until = [], [], container.look(), time.perf_counter() + LONGEST
    while len(walls) < REPEATS and (len(walls) < 2 or time.perf_counter() < until):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            multiply()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    took = min(container.took_ns(began, container.look()) / 1e9, max(0.0, sum(walls) - sum(cpus)))
    return min(walls), min(cpus), took / len(walls)


def _take_turn():
    """A lock that is held until it is closed; waited for, but with a limit."""
    turn, until = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), time.monotonic() + TURN_PATIENCE
    while True:
        try:
            turn.bind(TURN)
            return turn
        except OSError:
            if time.monotonic() >= until:
                return turn
            time.sleep(0.002)


def _best_way(local_rank):
    for way in (_with_torch, _with_numpy):
        try:
            return way(local_rank)
        except ImportError:
            pass
    return "python", _in_python(64)


def _with_torch(local_rank):
    import torch

    if torch.cuda.is_available():
        return "torch cuda", _on_gpu(torch, local_rank % torch.cuda.device_count())
    torch.set_num_threads(1)
    size = 1280
    one, two = torch.full((size, size), 0.5), torch.full((size, size), 2.0)

    def multiply():
        product = one @ two
        _check(float(product.min()), float(product.max()), size)

    return "torch cpu", multiply


def _on_gpu(torch, device):
    size, many = 4096, 4
    torch.cuda.set_device(device)
    one = torch.full((size, size), 0.5, device="cuda")
    two = torch.full((size, size), 2.0, device="cuda")

    def multiply():
        for _ in range(many):
            product = one @ two
        torch.cuda.synchronize()
        _check(float(product.min()), float(product.max()), size)

    return multiply


def _with_numpy(_local_rank):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    import numpy

    size = 1024
    one, two = numpy.full((size, size), 0.5, "float32"), numpy.full((size, size), 2.0, "float32")

    def multiply():
        product = one @ two
        _check(float(product.min()), float(product.max()), size)

    return "numpy", multiply


def _in_python(size):
    rows, columns = [[0.5] * size for _ in range(size)], [[2.0] * size for _ in range(size)]

    def multiply():
        product = [sum(a * b for a, b in zip(row, column)) for row in rows for column in columns]
        _check(min(product), max(product), size)

    return multiply


def _check(least, most, expected):
    if not least == most == expected:
        raise Wrong("every element of the product must be %d; they are from %r to %r" % (expected, least, most))
