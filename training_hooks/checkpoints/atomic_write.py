"""Where a save is written before it takes the place of the old file. It is a folder of its own beside the target.

The file has its own name there, because torch puts the name into the bytes, which are to be the same as without us. It
is flushed to disk and renamed. Links, special files, file objects and what cannot be written beside are saved as they
are. OUTRIDER_ATOMIC_SAVE=0 turns that off; with `required` a save fails where nothing can be written beside, instead of
going in place.

A process that is killed in a save leaves the folder. Who reaps it removes it; where that one is gone too (the template,
the whole member), the next process that saves there does: the folder's name says whose it is. `<host>-<pid namespace>`
makes a pid mean one process only, since pods of one node may share a host name, and a shared disk has many hosts; of
another host's folders only those are removed that nobody has written to for a day.
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
    """Where a pid of this process's kind means one process."""
    try:
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except OSError:
        namespace = "0"
    return "%s-%s" % (os.uname().nodename.replace(os.sep, "_"), namespace)


_swept = set()


def sweep_once(parent):
    """Once in each process; a folder that cannot be listed is left as it is."""
    asked = (os.getpid(), os.path.abspath(parent))
    if asked not in _swept:
        _swept.add(asked)
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
    """A path whose file can be replaced by another: not a link, not special, not one of several names of a file."""
    try:
        info = os.lstat(target)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def is_required():
    """No save is to go in place for want of room, or of the right to write beside."""
    return os.environ.get("OUTRIDER_ATOMIC_SAVE") == "required"


class Beside:
    """The place where the new file is written: a folder of its own in the target's folder. None could be made: `path`
    is the target itself, and `lack` the error where it is one that must not be passed over."""

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
        """Written down before it exists, so that a kill at any moment leaves nothing unknown."""
        sweep_once(parent)
        name = ".outrider-%s-%d-%d" % (place(), os.getpid(), next(Beside.numbers))
        folder = os.path.join(parent, name)
        self.page.set_leftover(os.path.abspath(folder))
        os.mkdir(folder, 0o700)
        return folder

    def finish(self, may=None):
        """True where the file is at its place now; False where `may()` says no at the last moment."""
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
        """Gives back the room of what was written so far; True."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        return True

    def leave(self):
        """After success and failure alike; again does nothing."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""
            self.page.set_leftover("")
