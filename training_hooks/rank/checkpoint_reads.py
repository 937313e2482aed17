"""Whether a script reads, before its first step, a file that was written while its job trained.

Saves by pickle, by numpy or by another process are not seen, nor are loads of such files. A script that loads one
resumes at an unknown step, and counting its steps from 0 as if nothing had been saved would be wrong. `open` is
replaced from the fork to the first step, and only if the job has trained and no save of it is known.
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
"""Seconds by which a file's time may lie before the moment of the write: the kernel takes it from its last tick."""
CACHES = ("cache", "torchinductor", ".triton")


class Reads:
    def __init__(self, since):
        """`since`: when training began, in seconds since the epoch, the unit of file times."""
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
        except Exception:  # the file is open; only the observation is lost
            pass
        return file

    def loaded(self, path):
        """Records a load that does not call `open`."""
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
        """Restores `open` at the first step; returns whether such a file was read."""
        for module in (builtins, io):
            if module.open is self._ours:
                module.open = self._real
        return self.seen
