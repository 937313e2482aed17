"""Reports whether any process opens a checkpoint, by whatever means: C++, Rust, a subprocess of the script.

inotify reports it for the processes of this machine. If inotify is not available, or none of the files is on this
machine, the answer is not known; it is then reported as if a checkpoint had been opened.
"""

import os
import struct

OPENED, IS_FOLDER, OVERFLOW = 0x20, 0x40000000, 0x4000
EVENT = struct.Struct("iIII")


class Opens:
    def __init__(self, paths):
        self.fd = -1
        self.is_unsure = True
        found = [path for path in paths if os.path.exists(path)]
        if not found:
            return
        try:
            import ctypes

            libc = ctypes.CDLL(None)
            self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self.fd >= 0:
                added = [libc.inotify_add_watch(self.fd, os.fsencode(path), OPENED) for path in found]
                self.is_unsure = min(added) < 0
        except Exception:  # libc cannot be called: the answer stays unknown
            pass

    def seen(self):
        """Whether a checkpoint was opened until now; callable once, because it ends the watch."""
        if self.fd < 0:
            return True
        try:
            return self.is_unsure or self._is_one_opened()
        finally:
            os.close(self.fd)
            self.fd = -1

    def _is_one_opened(self):
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # all events are read
                return False
            at = 0
            while at < len(data):
                _, mask, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size + length
                if mask & OVERFLOW or (mask & OPENED and not mask & IS_FOLDER):
                    return True
