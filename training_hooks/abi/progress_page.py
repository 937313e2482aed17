"""The progress page of one worker process: 4096 bytes in the member's volume, mapped, written without system calls.

The worker process owns the file and never shrinks it (truncating a mapped page is a SIGBUS in the trainer); sidecar and
template read it. Layout: docs/contracts.md. The sequence number is odd during a write, except for a step's
(`telemetry.step_counter`), whose three numbers are each written atomically. Two threads may write (an asynchronous save
beside a step): a reader can then see one field newer than the next, but the number never stays odd, because a write
always ends on an even one.

From offset 256 the page has data for the template only: the path of an unfinished save, which the template removes if
the process was killed during it. Its last 128 bytes say what the process has spent its time on.
"""

import mmap
import os
import struct
import time

MAGIC, VERSION = b"OTRP", 1
SIZE = 4096
INIT, STEP, CHECKPOINT, EVAL = range(4)
PHASES = ("init", "step", "checkpoint", "eval")
SEQUENCE, TERM, NUMBER, PID, STEPS, BASE, LAST, BEFORE, SAMPLES, PHASE, SINCE, SAVES, LONGEST, FORKED, BEHIND = range(
    1, 16
)
"""Indices of the page as an array of u64. PHASE has two u32: the phase, and the source of the steps above it. BEHIND:
in the phase CHECKPOINT it is 1 plus the previous phase once all is saved (more saves may follow), else 0."""
WINDOW = 16
"""Index of the newest window of steps (`telemetry.busy_time`): its own sequence number, then eleven numbers."""
WINDOW_NUMBERS = 11
STUCK = WINDOW + 1 + WINDOW_NUMBERS
"""Index that is 1 while the process cannot make its next step by itself (`frameworks.tf_session_recovery`); written
without the sequence number."""
OPENED = STUCK + 1
"""Index that is 1 if, before the first step, a known checkpoint was opened (`rank.checkpoint_opens`) or a file was read
that may be one (`rank.checkpoint_reads`)."""
FIRST = OPENED + 1
"""Index of the time of the member's first step, in wall-clock ns; a new process does not change it."""
FROM_OPTIMIZER, FROM_BATCHES = 1, 2
LEFTOVER = 256
TIMES = 496
"""Index of the numbers of `telemetry.time_spent`, in ns; written without the sequence number."""
BORN, IMPORTED, FIRST_END, DOING, DOING_SINCE, SPENT = range(TIMES, TIMES + 6)
"""When the process began, last looked for a module before its first activity, and ended its first step; the activity
that is under way (0: none) and since when. Behind SPENT, by activity, the time of all that have ended."""
ACTIVITIES = ("", "importing", "rendezvous", "loading", "checkpoint", "data", "evaluation")
IMPORTING, RENDEZVOUS, LOADING, SAVING, DATA, EVALUATION = range(1, 7)
SHORTEST_PATIENCE = 2.0
HEAD = struct.Struct("<4sI15Q")
WORD = struct.Struct("<I")


def let_others_read(path, fd):
    """Makes a file readable for the sidecar, which is another user in a pod, whatever umask the script's shell has
    set."""
    try:
        os.chmod(os.path.dirname(path), 0o755)
        os.fchmod(fd, 0o644)
    except OSError:  # the folder belongs to another user, who has set its rights
        pass


class Page:
    """A mapped page. `words` is the page as u64: the step hook writes into it directly."""

    def __init__(self, path, term=0, number=0):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            let_others_read(path, fd)
            if os.fstat(fd).st_size < SIZE:
                os.posix_fallocate(fd, 0, SIZE)
            self.map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        self.words = memoryview(self.map).cast("Q")
        self.source = 0
        self._clear(term, number)

    def _clear(self, term, number):
        words, now = self.words, time.monotonic_ns()
        words[SEQUENCE] |= 1
        self.map[0:8] = MAGIC + WORD.pack(VERSION)
        for index in (*range(TERM, BEHIND + 1), *range(WINDOW, OPENED + 1), *range(TIMES, SPENT + len(ACTIVITIES))):
            words[index] = 0
        words[TERM], words[NUMBER], words[PID] = term, number, os.getpid()
        words[SINCE] = words[FORKED] = now
        self.map[LEFTOVER : LEFTOVER + 4] = WORD.pack(0)
        words[SEQUENCE] = (words[SEQUENCE] | 1) + 1

    def set(self, *pairs):
        """Writes (index, value) pairs as one update."""
        words = self.words
        words[SEQUENCE] |= 1
        for index, value in pairs:
            words[index] = value
        words[SEQUENCE] = (words[SEQUENCE] | 1) + 1

    def counted(self):
        """The pairs that a step changes, for `set`."""
        return tuple((index, self.words[index]) for index in (STEPS, LAST, BEFORE, PHASE, SINCE))

    def set_phase(self, phase):
        self.set((PHASE, phase | self.source << 32), (SINCE, time.monotonic_ns()), (BEHIND, 0))

    def set_window(self, first, own, stolen):
        """Writes a window. `first`: its first step, counted from the start of this process; times in nanoseconds per
        step."""
        words = self.words
        words[WINDOW] |= 1
        source = own.source | own.steps << 32
        times = (own.gap, own.busy, own.step, own.shape, own.cpu, own.waited, own.delayed, own.throttled, stolen)
        for index, value in enumerate((first, source) + times, WINDOW + 1):
            words[index] = value
        words[WINDOW] = (words[WINDOW] | 1) + 1

    def set_leftover(self, path):
        """Records the path to remove if this process is killed now, or ""."""
        name = os.fsencode(path)
        if len(name) > 8 * TIMES - LEFTOVER - 4:
            return
        self.map[LEFTOVER + 4 : LEFTOVER + 4 + len(name)] = name
        self.map[LEFTOVER : LEFTOVER + 4] = WORD.pack(len(name))


class Reading:
    """A page at one moment."""

    def __init__(self, data):
        fields = HEAD.unpack_from(data)
        self.generation = [fields[3], fields[4]]
        self.pid, self.step, self.base = fields[5], fields[6], fields[7]
        self.phase, self.source = fields[11] & 0xFFFFFFFF, fields[11] >> 32
        self.since, self.saves, self.longest = fields[12] / 1e9, fields[13], fields[14] / 1e9
        behind = fields[16] - 1 if self.phase == CHECKPOINT and fields[16] else self.phase
        self.name = PHASES[min(behind, 3)]
        """The phase as a word; after a save it is the phase in which the process continues."""
        (length,) = WORD.unpack_from(data, LEFTOVER)
        self.leftover = os.fsdecode(data[LEFTOVER + 4 : LEFTOVER + 4 + length])

    def patience(self, save_grace):
        """Seconds that a stop waits for a save of this process: three times its longest, if it has saved before."""
        return min(max(SHORTEST_PATIENCE, 3 * self.longest), save_grace) if self.saves else save_grace


def read(path, pid=None):
    """The page that process `pid` has written, or None if there is none or it is another's; without a pid anyone's."""
    for _ in range(4):
        try:
            with open(path, "rb") as file:
                data = file.read(SIZE)
        except OSError:
            return None
        if len(data) < SIZE or data[:4] != MAGIC:
            return None
        reading = Reading(data)
        if not data[8] & 1:
            return reading if pid in (None, reading.pid) else None
    return None
