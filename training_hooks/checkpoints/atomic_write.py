"""Writes a save into its own folder beside the target, then renames the file over the target.

The file keeps its name in that folder, because torch writes the name into the file and the bytes must not differ from a
save without Outrider. It is flushed to disk before the rename. Links, special files, file objects and targets with no
writable folder are saved as without Outrider. OUTRIDER_ATOMIC_SAVE=0 turns this off; with `required` a save fails if
nothing can be written beside the target, instead of overwriting it in place.

A process that is killed during a save leaves the folder. The process that reaps it removes the folder; if that one is
gone too (the template, the whole member), the next process that saves there does. The folder's name has its owner:
`<host>-<pid namespace>` makes a pid unique, since pods of one node may share a host name and a shared disk has many
hosts. Of another host's folders only those without a write for a day are removed.
"""

import errno
import itertools
import os
import re
import shutil
import stat
import time

NAME = re.compile(r"\.outrider-(.+)-(\d+)-(\d+)")
ABANDONED = 86400.0


def place():
    """Identifies the host and pid namespace in which a pid of this process is unique."""
    try:
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except OSError:
        namespace = "0"
    return "%s-%s" % (os.uname().nodename.replace(os.sep, "_"), namespace)


_swept = set()


def sweep_once(parent):
    """Sweeps a folder once in each process; a folder that cannot be listed is left as it is."""
    key = (os.getpid(), os.path.abspath(parent))
    if key not in _swept:
        _swept.add(key)
        try:
            sweep(parent)
        except OSError:
            pass


def sweep(parent):
    """Removes what killed processes have left in this folder."""
    here = place()
    for entry in os.listdir(parent):
        found = NAME.fullmatch(entry)
        if not found:
            continue
        path = os.path.join(parent, entry)
        if not os.path.exists("/proc/" + found.group(2)) if found.group(1) == here else _is_old(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_old(path):
    try:
        moments = [os.stat(path).st_mtime] + [os.stat(os.path.join(path, each)).st_mtime for each in os.listdir(path)]
    except OSError:
        return False
    return time.time() - max(moments) > ABANDONED


def is_plain_path(target):
    """Whether a rename can replace the file: it is not a link, not special, and has one name."""
    try:
        info = os.lstat(target)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def is_required():
    """Whether a save must fail rather than overwrite in place, for lack of room or of write permission."""
    return os.environ.get("OUTRIDER_ATOMIC_SAVE") == "required"


class Beside:
    """The folder beside the target in which the new file is written. If none could be created, `path` is the target
    itself, and `lack` is the error if it must not be ignored."""

    numbers = itertools.count()

    def __init__(self, target, page):
        self.target, self.page, self.folder = target, page, ""
        self.path, self.lack = target, None
        if os.environ.get("OUTRIDER_ATOMIC_SAVE") == "0" or not os.path.basename(target) or not is_plain_path(target):
            return
        try:
            self.folder = self._make(os.path.dirname(target) or ".")
        except OSError as error:
            page.set_leftover("")
            if is_required() or error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.lack = error
            return
        self.path = os.path.join(self.folder, os.path.basename(target))

    def _make(self, parent):
        """Records the folder's name before it exists, so that a kill at any moment leaves no unknown folder."""
        sweep_once(parent)
        name = ".outrider-%s-%d-%d" % (place(), os.getpid(), next(Beside.numbers))
        folder = os.path.join(parent, name)
        self.page.set_leftover(os.path.abspath(folder))
        os.mkdir(folder, 0o700)
        return folder

    def finish(self, may=None):
        """Renames the file to its target; returns False if `may()` refuses at the last moment."""
        if not self.folder:
            return True
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._keep_mode(fd)
            os.fsync(fd)
        finally:
            os.close(fd)
        if may is not None and not may():
            return False
        os.replace(self.path, self.target)
        self._sync_folder()
        return True

    def _sync_folder(self):
        try:
            fd = os.open(os.path.dirname(self.target) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.fsync(fd)
        except OSError:
            pass
        finally:
            os.close(fd)

    def _keep_mode(self, fd):
        try:
            old = os.stat(self.target)
            os.fchmod(fd, stat.S_IMODE(old.st_mode))
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(fd, old.st_uid, old.st_gid)
        except OSError:
            pass

    def empty(self):
        """Frees the room of what was written so far; returns True."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        return True

    def leave(self):
        """Removes the folder, after success and failure alike; a second call does nothing."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""
            self.page.set_leftover("")
