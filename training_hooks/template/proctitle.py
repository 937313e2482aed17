"""Names that distinguish a template and its worker processes in `ps`.

The template overwrites its own argv area, which `ps aux` shows. A worker process gets the original back, since a script
may read /proc/self/cmdline, and has its rank as short name (`ps -e`, `top`, PR_SET_NAME).
"""

import ctypes
import os

PR_SET_NAME = 15


def set_short(name):
    try:
        ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(os.fsencode(name)[:15]), 0, 0, 0)
    except (OSError, AttributeError):
        pass


class Title:
    """The argv area of this process: `show` overwrites it, `restore` puts the original back."""

    def __init__(self):
        self.start = self.original = None
        try:
            with open("/proc/self/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            start, end = int(fields[45]), int(fields[46])
            with open("/proc/self/cmdline", "rb") as file:
                original = file.read()
            if start and len(original) == end - start and ctypes.string_at(start, end - start) == original:
                self.start, self.original = start, original
        except (OSError, ValueError, IndexError):
            pass

    def show(self, text):
        if self.start:
            room = len(self.original)
            ctypes.memmove(self.start, os.fsencode(text)[: room - 1].ljust(room, b"\0"), room)

    def restore(self):
        if self.start:
            ctypes.memmove(self.start, self.original, len(self.original))
