"""Measures a window of steps now and then (`telemetry.busy_time`), at the same step numbers on all ranks.

The result is written to the page. Two threads share one Sampler. The hooks' thread checks whether a window is due, arms
the sampler shortly before, and reads the Flight Recorder afterwards: 13 to 16 ms with the GIL held if its 2,000 entries
are full, once in 7 to 15 s. All ranks do so after the same step, so a job pays for one of them, not for all. The
training thread sets a mark at the end of each armed step (2 µs). A step that is not armed costs nothing, because the
hook's one comparison passes only the others on (`telemetry.step_counter`).

A failure here only disarms the sampler.
"""

import os
import sys
import threading
import time

from ..abi import progress_page
from . import busy_time, cpu_contention

SCHEDSTAT = "/proc/thread-self/schedstat"
ARM_BEFORE, ARM_STEPS_BEFORE = 0.4, 2
"""Seconds, plus a number of steps, before a window's first step at which the sampler is armed."""
LOOK_EARLY = 0.9
"""Share of the time to that moment after which the thread looks, because steps are not equally long."""
REST, ARMED_PAUSE = 2.0, 1.0
MOST_ENDS = 256
CLOCK_JUMP = 2 * 10**6
"""Nanoseconds by which the wall clock may move against the monotonic one within a window."""


class Sampler:
    """`armed`: whether the step hook must call `mark` with each step."""

    def __init__(self, worker):
        self.worker = worker
        self.armed = False
        self.first = self.count = 0
        self.marks = []
        self.whole = None
        self.step_seconds = 0.0
        self._behind = None
        self._spoiled, self._waited, self._ends = False, 0, []
        self._stat, self._thread, self._offset = -1, 0, 0
        self._pressure, self._looked = None, None

    # -- in the training thread ---------------------------------------------------------------------------------------
    def mark(self, step):
        """Called after a step; `step`: the number of steps since this process began."""
        try:
            self._mark(step)
        except Exception:  # /proc is missing, or the interpreter ends: only this window is lost
            self._disarm()

    def _mark(self, step):
        if step < self.first:
            self._spoiled, self._waited, self._ends = False, 0, []
            return
        if not self.marks:
            self._disarm()
            self.armed = True
            self._stat, self._thread = _open_stat(), threading.get_ident()
            self._offset = time.time_ns() - time.monotonic_ns()
        if step != self.first + len(self.marks):
            self._disarm()
            return
        cpu, delay = self.usage()
        self.marks.append(busy_time.Mark(time.monotonic_ns(), cpu, delay, self._waited, self._spoiled, self._ends))
        self._spoiled, self._waited, self._ends = False, 0, []
        if len(self.marks) > self.count:
            self._complete()

    def _complete(self):
        """Ends a window. If windows follow each other, its last mark is the first of the next one."""
        self.whole = (self.first, self.marks)
        if busy_time.stride(self.step_seconds) == self.count:
            self.first, self.marks = self.first + self.count, self.marks[-1:]
        else:
            self._disarm()
        self.worker.channel.send(str(self.worker.local_rank), {"window": self.whole[0]})

    def _disarm(self):
        self.armed = False
        if self._stat >= 0:
            os.close(self._stat)
            self._stat = -1

    def usage(self):
        """(nanoseconds that this thread has run, nanoseconds that it has waited for a core)."""
        delay = int(os.pread(self._stat, 64, 0).split()[1]) if self._stat >= 0 else 0
        return time.thread_time_ns(), delay  # the file's own first number grows only with the scheduler's ticks

    def also(self):
        """Called after a step of another optimizer, which does not count as a step."""
        if len(self._ends) < MOST_ENDS:
            self._ends.append(time.monotonic_ns())

    def spoil(self):
        """Called by a checkpoint or an evaluation: the current step is not measured."""
        self._spoiled = True

    def wait(self, deliver):
        """Calls `deliver`, a DataLoader's next, and counts the wait in it. A call by another thread delays no step."""
        if self._thread != threading.get_ident():
            return deliver()
        began, run, delay = time.monotonic_ns(), *self.usage()
        try:
            return deliver()
        finally:
            try:
                run_then, delay_then = self.usage()
                took = time.monotonic_ns() - began
                self._waited += max(0, took - (run_then - run) - (delay_then - delay))
            except Exception:  # only the batch matters
                pass

    # -- in the hooks' thread -----------------------------------------------------------------------------------------
    def pause(self):
        """Seconds until the next call of `look`."""
        if self.armed:
            return ARMED_PAUSE
        due, _, _ = self._next()
        return REST if due is None else max(0.05, LOOK_EARLY * due)

    def look(self, record):
        """`record()` returns the Flight Recorder's entries; an empty list without a recorder."""
        if self.whole is not None:
            (first, marks), self.whole = self.whole, None
            self._publish(first, marks, record())
        if self.armed:
            self.worker.phase_changed()  # again: the hook may have been past its comparison the first time
        else:
            due, first, count = self._next()
            if due is not None and due <= 0:
                self._arm(first, count)

    def _next(self):
        """(seconds until the next window must be armed, its first step, steps); no seconds while no steps are made."""
        words = self.worker.page.words
        made = words[progress_page.STEPS] - words[progress_page.BASE]
        if made < 2 or self.worker.phase() != progress_page.STEP:
            return None, 0, 0
        step_seconds = (
            max(self.step_seconds, self._since(made)) or (words[progress_page.LAST] - words[progress_page.BEFORE]) / 1e9
        )
        stride = busy_time.stride(step_seconds)
        first = (made // stride + 1) * stride
        ends_in = (first - made) * step_seconds - (time.monotonic_ns() - words[progress_page.LAST]) / 1e9
        return ends_in - ARM_BEFORE - ARM_STEPS_BEFORE * step_seconds, first, busy_time.count(stride)

    def _since(self, made):
        """Seconds per step since the last window. If steps have become long, the next window must not wait for as many
        steps as when they were short."""
        if self._behind is None or made < self._behind[0] + 2:
            return 0.0
        step, at = self._behind
        return (self.worker.page.words[progress_page.LAST] - at) / 1e9 / (made - step)

    def _arm(self, first, count):
        if self._pressure is None:
            self._pressure = cpu_contention.Pressure()
        self._looked = (time.monotonic_ns(), self._pressure.look())
        self.marks, self.first, self.count = [], first, count
        self.armed = True
        self.worker.phase_changed()

    def _publish(self, first, marks, entries):
        self._behind = (first + len(marks) - 1, marks[-1].at)
        offset = time.time_ns() - time.monotonic_ns()
        if abs(offset - self._offset) > CLOCK_JUMP:
            self.armed = False  # the next window measures the distance of the clocks again
            return
        created = [(entry["time_created_ns"] - offset, entry["profiling_name"]) for entry in entries]
        created = sorted(each for each in created if each[0] <= marks[-1].at)
        (at, before), self._looked = self._looked, (time.monotonic_ns(), self._pressure.look())
        throttled, stolen = cpu_contention.Pressure.since(before, self._looked[1], self._looked[0] - at)
        found = busy_time.measure(marks, created, _beside_gpu(), throttled)
        if found is not None:
            self.step_seconds = found.step / 1e9
            self.worker.page.set_window(first, found, int(stolen * found.step))


def _open_stat():
    try:
        return os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _beside_gpu():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return bool(cuda and cuda.is_initialized())  # is_available asks the driver, which no fork of this process survives
