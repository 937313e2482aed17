"""Takes a window of steps now and then (`telemetry.busy_time`). It is at the same step numbers on all ranks, and is
written on the page.

Two threads share one Sampler. The hooks' own thread looks when a window is due, arms the sampler shortly before, and
reads the Flight Recorder afterwards: 13 to 16 ms with the GIL held where its 2,000 entries are full, once in 7 to 15 s.
The ranks do so behind the same step, so a job pays for one of them, not for all. The training's thread sets a mark at
the end of each armed step, 2 µs; a step that is not armed costs nothing, because the hook's one comparison lets only
the others through (`telemetry.step_counter`).

What fails here disarms the sampler and nothing else.
"""

import os
import sys
import threading
import time

from ..abi import progress_page
from . import busy_time, cpu_contention

SCHEDSTAT = "/proc/thread-self/schedstat"
ARM_BEFORE, ARM_STEPS_BEFORE = 0.4, 2
"""Seconds, and steps beside them, before a window's first step at which the sampler is armed."""
LOOK_EARLY = 0.9
"""Of the time to that moment: steps are not all equally long."""
REST, ARMED_PAUSE = 2.0, 1.0
MOST_ENDS = 256
CLOCK_JUMP = 2 * 10**6
"""Nanoseconds by which the wall clock may have moved against the monotonic one within a window."""


class Sampler:
    """`armed`: the step hook is to call `mark` with each step."""

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

    # -- in the training's thread -------------------------------------------------------------------------------------
    def mark(self, step):
        """A step of this process has ended; `step` of them since it began."""
        try:
            self._mark(step)
        except Exception:  # no /proc, an interpreter that ends: this window is lost
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
        """Where windows follow each other, the last mark is the next one's first."""
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
        return time.thread_time_ns(), delay  # the file's own first number grows with the scheduler's ticks only

    def also(self):
        """Another optimizer's step has ended, which counts for none."""
        if len(self._ends) < MOST_ENDS:
            self._ends.append(time.monotonic_ns())

    def spoil(self):
        """A checkpoint or an evaluation: this step says nothing."""
        self._spoiled = True

    def wait(self, deliver):
        """Calls `deliver`, a DataLoader's next, and counts what of it is waiting. One that another thread calls holds
        up no step."""
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
            except Exception:  # the batch is what matters
                pass

    # -- in the hooks' thread -----------------------------------------------------------------------------------------
    def pause(self):
        """Seconds until `look` is wanted again."""
        if self.armed:
            return ARMED_PAUSE
        due, _, _ = self._next()
        return REST if due is None else max(0.05, LOOK_EARLY * due)

    def look(self, record):
        """`record()` gives the Flight Recorder's entries, none where there is no recorder."""
        if self.whole is not None:
            (first, marks), self.whole = self.whole, None
            self._publish(first, marks, record())
        if self.armed:
            self.worker.phase_changed()  # the hook may have been on its way past the first time
        else:
            due, first, count = self._next()
            if due is not None and due <= 0:
                self._arm(first, count)

    def _next(self):
        """(seconds until the next window is to be armed, its first step, steps); no seconds while no steps are made."""
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
        """Seconds a step since the last window: where they have become long, the next one is not to be waited for in
        steps that were short."""
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
            self.armed = False  # the next window takes the clocks' distance anew
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
