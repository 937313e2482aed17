"""Whether a script reads, before its first step, a file that was written while its job trained.

Saves by pickle, numpy, or another process are not seen, and neither is what is loaded from them: such a script goes on
somewhere, and to count its steps from 0 as if nothing had been saved would be wrong. `open` is replaced from the fork
to the first step, and only where training has been and no save of the job is known.
"""

import builtins
import io
import os
import stat
import time

from ..process import builtin_wrappers

NO_CHECKPOINTS = (".py", ".pyc", ".so", ".log", ".lock")
PLACES = ("/proc/", "/sys/", "/dev/")
TICK = 0.01
"""Seconds. A file's time is that of the kernel's last tick: it may lie so much before a moment that came first."""
CACHES = ("cache", "torchinductor", ".triton")


class Reads:
    def __init__(self, since):
        """`since`: when training began, in seconds of the wall clock, as files have it."""
        self.since, self.now = since, time.time()
        self.seen = False
        self._real = builtins.open
        self._ours = builtin_wrappers.Wrapped(self._real, self._open, "io")
        builtins.open = io.open = self._ours

    def _open(self, real, *args, **kwargs):
        file = real(*args, **kwargs)
        try:
            mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
            path = args[0] if args else kwargs.get("file")
            if not self.seen and "r" in mode and not isinstance(path, int):
                self._look(os.path.abspath(os.fsdecode(path)), os.fstat(file.fileno()))
        except Exception:  # whatever it is, it is open
            pass
        return file

    def loaded(self, path):
        """By what does not call `open`."""
        try:
            path = os.path.join(path, ".metadata") if os.path.isdir(path) else path
            self._look(os.path.abspath(path), os.stat(path))
        except (OSError, ValueError):
            pass

    def _look(self, path, about):
        was_written = stat.S_ISREG(about.st_mode) and self.since - TICK <= about.st_mtime <= self.now
        if was_written and not path.endswith(NO_CHECKPOINTS) and not path.startswith(PLACES):
            self.seen |= not any(cache in path for cache in CACHES)

    def end(self):
        """At the first step; whether one was read."""
        for module in (builtins, io):
            if module.open is self._ours:
                module.open = self._real
        return self.seen
