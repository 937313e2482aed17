"""A kernel without pidfds, as a seccomp filter makes one: a trainer that lives is not taken for lost, its end is
noticed, and it can be signalled."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
PROGRAM = r"""
import asyncio, ctypes, errno, os, signal, struct, subprocess, sys

def forbid(*numbers):
    '''As seccomp(2) has it: these system calls answer ENOSYS, of this process and its children.'''
    lines = [(0x20, 0, 0, 0)]  # load the number
    lines += [(0x15, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno.ENOSYS)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0):
        print("no filter", os.strerror(ctypes.get_errno()))
        sys.exit(0)

forbid(434, 424)  # pidfd_open, pidfd_send_signal, on every architecture
try:
    os.pidfd_open(os.getpid())
except OSError as error:
    assert error.errno == errno.ENOSYS, error
else:
    sys.exit("the filter does nothing")

from outrider.runtime.processes import send_signal
from outrider.sidecar.shell.trainers import Trainers

async def main():
    ended = asyncio.Queue()
    trainers = Trainers("uid", ended.put_nowait)
    child = subprocess.Popen(["sleep", "1000"], env=dict(os.environ, OUTRIDER_POD_UID="uid"))
    while b"OUTRIDER_POD_UID" not in open("/proc/%d/environ" % child.pid, "rb").read():
        pass
    trainers.watch(child.pid)
    trainers.watch(child.pid)
    assert ended.empty(), "it lives"
    assert not send_signal(child.pid, signal.SIGKILL, "OUTRIDER_POD_UID", "another")
    assert send_signal(child.pid, signal.SIGTERM, "OUTRIDER_POD_UID", "uid")
    assert await ended.get() == child.pid
    assert child.wait() == -signal.SIGTERM
    trainers.watch(child.pid)
    assert await ended.get() == child.pid, "it has gone already"
    assert trainers.sweep_all() == []
    trainers.close()
    print("well")

asyncio.run(main())
"""


def test_without_pidfds_a_trainer_is_watched_and_signalled_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    if done.stdout.startswith("no filter"):
        pytest.skip(f"no seccomp filter can be made here: {done.stdout}")
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
