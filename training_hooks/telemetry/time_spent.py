"""Keeps on the progress page how long this process has done other things than steps, for the time account.

One activity is under way at a time. The page has the seconds of all that have ended, and which one is under way since
when, so that a reader can divide the age of the process without asking it. All else is steps, or what comes before the
first one. Only the main thread counts: a save in a background thread stalls nothing.
"""

import os
import sys
import threading
import time

from ..abi import progress_page as pages


class TimeSpent:
    def __init__(self, words):
        self.words = words
        self._main = threading.main_thread().ident
        self._imports = _Imports(words)
        now = time.monotonic_ns()
        words[pages.BORN] = _born(now)
        words[pages.IMPORTED] = now
        words[pages.DOING_SINCE], words[pages.DOING] = words[pages.BORN], pages.IMPORTING
        sys.meta_path.insert(0, self._imports)

    def enter(self, activity):
        """Begins an activity; returns what `leave` needs. What was under way continues afterwards."""
        words = self.words
        if threading.get_ident() != self._main:
            return None
        before, now = words[pages.DOING], time.monotonic_ns()
        if before == pages.IMPORTING:
            before = self._imported()
        elif before:
            words[pages.SPENT + before] += now - words[pages.DOING_SINCE]
        words[pages.DOING_SINCE], words[pages.DOING] = now, activity
        return before

    def leave(self, before):
        if before is None:
            return
        words, now = self.words, time.monotonic_ns()
        words[pages.SPENT + words[pages.DOING]] += now - words[pages.DOING_SINCE]
        words[pages.DOING_SINCE], words[pages.DOING] = now, before

    def waits_for_data(self):
        """Begins a wait for a batch; None where it belongs to something else: to an evaluation, or to the first step.
        The first batch ends the imports."""
        words = self.words
        if words[pages.DOING] == pages.IMPORTING:
            words[pages.DOING] = self._imported()
        return self.enter(pages.DATA) if words[pages.FIRST_END] and not words[pages.DOING] else None

    def evaluated(self):
        """Ends an evaluation."""
        if self.words[pages.DOING] == pages.EVALUATION:
            self.leave(0)

    def stepped(self):
        """Ends the imports and an evaluation: called before the step is on the page. An evaluation without an end ends
        with the step after it, less what the step before took."""
        words = self.words
        now = time.monotonic_ns()
        if words[pages.DOING] == pages.IMPORTING:
            words[pages.DOING] = self._imported()
        elif words[pages.DOING] == pages.EVALUATION:
            step = words[pages.LAST] - words[pages.BEFORE] if words[pages.BEFORE] else 0
            words[pages.SPENT + pages.EVALUATION] += max(0, now - words[pages.DOING_SINCE] - step)
            words[pages.DOING] = 0
        words[pages.FIRST_END] = words[pages.FIRST_END] or now

    def _imported(self):
        """Ends the imports with the last module that was looked for; returns 0, for nothing is under way then."""
        words = self.words
        words[pages.SPENT + pages.IMPORTING] += max(0, words[pages.IMPORTED] - words[pages.BORN])
        if self._imports in sys.meta_path:
            sys.meta_path.remove(self._imports)
        return 0


class _Imports:
    """Notes when a module was looked for last; it finds none."""

    def __init__(self, words):
        self._words = words

    def find_spec(self, name, path=None, target=None):
        self._words[pages.IMPORTED] = time.monotonic_ns()


def _born(now):
    """When this process began, on the monotonic clock in ns; `now` if that is unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return now - int(max(0.0, age) * 1e9)
    except (OSError, ValueError, IndexError):
        return now
