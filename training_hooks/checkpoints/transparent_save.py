"""torch.save to the job's checkpoint path: it returns once the file is in memory, and a thread writes storage.

`checkpoints.transparent_load` describes what torch.load of that path returns. Rank 0 of the generation saves; the
master sends its saves to the other members. A version is the number of the save and its generation. If a save cannot be
made in memory it is an ordinary one, which is reported once: the state is too big, there is no process group (the other
ranks could not know of the save), or the path's file cannot be replaced. Two more saves are ordinary: the first one,
since scripts check whether the file exists, and one that replaces another program's file, because then the file's bytes
show who wrote it. A file that another program puts there during a write stays: it is the later one.
"""

import functools
import io
import os
import shutil
import threading
import time

from ..abi import arena
from ..process import builtin_wrappers
from ..rank import worker
from . import (
    announcements,
    disk_room,
    memory_save,
    memory_tier,
    save_hooks,
    torch_buffer,
    transparent_load,
    version_file,
)
from .atomic_write import Beside, is_plain_path
from .reservation import mebibytes

VARIABLE = memory_tier.MARKED_PATH
STARTED_IN = os.getcwd()
HELD = 60.0
"""Seconds for which a save keeps its slot until the other members have received it."""
OTHERS = 5
ELSEWHERE = (
    "%d checkpoints were saved, the last of them %s, and none by torch.save to the checkpoint path %s "
    "(--checkpoint-path, checkpointPath): nothing is kept in memory. A file that the script opens itself, or renames "
    "to that path, is written to storage only"
)
TOO_OFTEN = (
    "a save found no slot in memory, because the other members had not received the save before it; it was "
    "written to storage directly"
)
_mine = None


def here():
    """The handler of this process, or None if the job has no checkpoint path or this process is not a rank."""
    global _mine
    if VARIABLE not in os.environ or "RANK" not in os.environ:
        return None
    at = worker.current() or worker.observed()
    if at is None:
        return None
    if _mine is None or _mine.pid != os.getpid():
        _mine = Marked(os.environ[VARIABLE])
    return _mine


class Marked(memory_save.Rank):
    def __init__(self, spelled):
        super().__init__()
        self.kind = arena.MARKED
        self.path = os.path.realpath(os.path.join(STARTED_IN, spelled))
        self.announcements = announcements.Announcements(self.world, self.generation)
        self.lock = threading.RLock()
        self.number, self.last = None, None
        """Number and copy of the newest save; the copy is None for an ordinary save."""
        self.sent, self.sent_at = None, 0.0
        """The copy that the other members are receiving, as far as this process knows, and when it began."""
        self.stamp, self.unfit, self.others = None, "", 0
        """`unfit`: why no further save is kept in memory; `others`: the number of saves to other paths."""

    def is_it(self, f):
        """Whether `f` names the checkpoint path, in any spelling."""
        try:
            path = os.fspath(f)
            is_like_it = os.path.basename(path) == os.path.basename(self.path) or os.path.islink(path)
            return is_like_it and os.path.realpath(path) == self.path
        except (TypeError, ValueError, OSError):
            return False

    def is_under(self, folder):
        try:
            return self.path.startswith(os.path.join(os.path.realpath(os.fspath(folder)), ""))
        except (TypeError, ValueError, OSError):
            return False

    def named(self, head):
        return "save %d" % head.step

    # -- in the training thread ---------------------------------------------------------------------------------------
    def is_behind(self, f):
        """Whether `f` is the checkpoint path, or a file just opened from it."""
        return self.is_it(file_of(f) or f)

    def load(self, plain, f, args, kwargs):
        return transparent_load.load(self, plain, file_of(f) or f, args, kwargs)

    def save(self, plain, state, f, args, kwargs):
        """`plain` is torch's own save, which writes the file anywhere, and raises its own errors."""
        if self.rank != 0:
            self.warn("rank %d saves to %s by itself: only rank 0's saves are kept in memory" % (self.rank, self.path))
            self._whole(plain, state, f, args, kwargs, lambda written: None)
            return
        with self.lock:
            why, number = self._why_not(), self._next()
            is_first = not why and self._is_first()
            if why or is_first:
                self._save_ordinarily(plain, state, f, args, kwargs, number)
            if why:
                self.warn("%s: torch.save to %s writes to storage before it returns" % (why, self.path))
            elif not self._keep(plain, state, args, kwargs, number, None if is_first else self.path) and not is_first:
                self._save_ordinarily(plain, state, f, args, kwargs, number)

    def _why_not(self):
        """The reason why a save cannot be kept in memory, or "" if it can."""
        if self.memory is None:
            return "there is no checkpoint memory"
        if self.unfit:
            return self.unfit
        if not self.announcements.is_shared():
            return "there is no process group of all %d ranks, through which they learn of a save" % self.world
        folder = os.path.dirname(self.path)
        if os.environ.get("OUTRIDER_ATOMIC_SAVE") == "0" or not is_plain_path(self.path):
            return "the file cannot be replaced by a rename"
        return "" if os.access(folder, os.W_OK | os.X_OK) else "%s is not writable" % folder

    def _is_first(self):
        """Whether the path has no file of this job yet, or none any more."""
        before, now = self.stamp, version_file.stamp(self.path)  # in this order: a thread may be replacing it
        if now is not None and now == before:
            return False
        self.stamp = now
        try:
            save = version_file.read(self.path)[1]
        except OSError:
            return True
        return save is None or save[0] > self.generation  # written by an earlier job with the same path

    def _next(self):
        """A number greater than all earlier ones, as far as this process can see."""
        if self.number is None:
            begun = version_file.begun_from()
            known = [copy.head.step for copy in self.copies()] + [version_file.newest(self.path)]
            self.number = max(known + [begun[1] if begun else 0])
        self.number += 1
        return self.number

    def copies(self):
        try:
            return self.memory.copies(arena.MARKED) if self.memory is not None else []
        except arena.Unusable:  # the first save initializes it again
            return []

    def _save_ordinarily(self, plain, state, f, args, kwargs, number):
        self.settle()
        self._whole(plain, state, f, args, kwargs, lambda written: self._note(written, number))
        self.last, self.stamp = None, version_file.stamp(self.path)
        self.announcements.announce(announcements.WRITTEN, number)
        self.announcements.announce(announcements.SAVED, number)

    def _whole(self, plain, state, f, args, kwargs, note):
        def put(to):
            return plain(state, to, *args, **kwargs)

        path = os.fspath(f)
        save_hooks.whole(self.here, "torch.save", path, put, lambda: disk_room.measured(put, path), note)

    def _note(self, written, number):
        try:
            version_file.write(self.path, written, (self.generation, number))
        except OSError as error:
            self.warn("%s could not be written: %s" % (version_file.place(self.path), error.strerror or error))

    def _keep(self, plain, state, args, kwargs, number, path):
        """Saves to memory; returns whether the copy exists and the other ranks can learn of it."""
        positions = self.here.data.recorded() if self.here.data is not None else []
        counted = self.here.steps_made()
        began = self.here.begin_save()
        copy = None
        try:
            copy = self._copied(lambda file: plain(state, file, *args, **kwargs), number, counted, positions)
        except Exception as error:  # an ordinary save then raises it if the state is the cause
            self.warn("save %d is not kept in memory: %s" % (number, memory_save.sentence(error)))
        finally:
            self.here.end_save(copy is not None)
        if copy is None or not self.announcements.announce(announcements.SAVED, number):
            return False
        self.last, self.newest_by_path[path] = copy, number
        if self.sent is None:
            self.sent, self.sent_at = copy, time.monotonic()
        self.sealing.give(self.path, memory_save.Job(copy, path, counted, positions, began))
        return True

    def _copied(self, write, number, counted, positions):
        """The copy in memory, or None if there is no free slot or the slot is too small."""
        copy = self._place(number)
        if copy is None:
            self.warn(TOO_OFTEN)
            return None
        about = {"number": number, "generation": self.generation, "counted": counted, "positions": positions}
        room = copy.room
        where = torch_buffer.begin(room, about)
        writing = torch_buffer.Writing(room[where:])
        with torch_buffer.without_checksums():
            write(writing)
        if where > len(room) or not writing.fits():
            self.unfit = "the state does not fit into the checkpoint memory"
            self.warn(too_big(where + writing.length, copy.divided))
            return None
        if not torch_buffer.is_zip(room[where:]):
            self.unfit = "the state is saved in torch's old format, which has no checksums to identify a file by"
            return None
        copy.head = copy.head._replace(length=torch_buffer.end(room, where, writing.length))
        return copy

    def _place(self, number):
        """A slot to write to. Training waits if saves come faster than their checksums or the writes to storage."""
        self._hold()
        head = arena.Head(
            arena.VERSION, 0, number, self.generation, self.rank, self.world, arena.MARKED,
            sealed=0, length=0, crc32=0, quick=0,
        )  # fmt: skip
        copy = self.memory.begin(head)
        for waited in (self.sealing, self.storing) if copy is None else ():
            waited.wait()
            copy = copy or self.memory.begin(head)
        return copy

    def _hold(self):
        kept, sent = arena.kept(self.memory.fd), self.sent
        is_over = sent is not None and kept is not None and kept >= sent.head.step
        if self.world == self.memory.local_world or is_over or time.monotonic() - self.sent_at > HELD:
            self.sent = None
        self.memory.pinned.pop("copies", None)
        if self.sent is not None:
            self.memory.pinned["copies"] = self.sent.slot

    def settle(self):
        """Waits until storage has all saves."""
        self.sealing.wait()
        self.storing.wait()

    # -- in the background --------------------------------------------------------------------------------------------
    def store(self, job):
        done = super().store(job)
        self.announcements.announce(announcements.WRITTEN if done else announcements.FAILED, job.copy.head.step)
        return done

    def _write_copy(self, job):
        if not job.copy.is_there():
            return False
        _, file = torch_buffer.opened(job.copy.view)
        beside = Beside(self.path, self.here.page)
        try:
            if not beside.folder:
                raise beside.lack or OSError("no file can be written beside it")
            return self._write_file(job, file, beside)
        finally:
            beside.leave()

    def _write_file(self, job, file, beside):
        with open(beside.path, "wb") as out:
            for at in range(0, len(file), torch_buffer.PIECE):
                if not job.copy.is_there():
                    return False
                out.write(file[at : at + torch_buffer.PIECE])
            for at, data in torch_buffer.checksums(file):
                out.seek(at)
                out.write(data)
        if not job.copy.is_there():
            return False
        if self.here.data is not None:
            self.here.data.saved(self.path, beside.path, job.positions)
        self._note(beside.path, job.copy.head.step)
        if beside.finish(lambda: version_file.stamp(self.path) == self.stamp):
            self.stamp = version_file.stamp(self.path)
        else:
            self.warn(_not_ours_any_more(self.path, self.named(job.copy.head)))
        return True


def _not_ours_any_more(path, save):
    if version_file.stamp(path) is None:
        return "another program has removed %s: %s is not written there" % (path, save)
    return "another program has replaced %s: its file stays, and is the one that is loaded" % path


def saved(path):
    """Called for every finished checkpoint. Reports a job whose saves never go to its checkpoint path."""
    mine = here()
    if mine is None or mine.rank != 0 or mine.number is not None:
        return
    mine.others += 1
    if mine.others == OTHERS:
        mine.warn(ELSEWHERE % (OTHERS, os.path.abspath(path), mine.path))


def file_of(f):
    """The name of a file that is open at its beginning, or None for anything else."""
    if type(f) not in (io.BufferedReader, io.BufferedRandom, io.FileIO):
        return None
    try:
        return f.name if isinstance(f.name, str) and f.readable() and f.tell() == 0 else None
    except (OSError, ValueError):
        return None


def too_big(needed, divided):
    needed_memory = 2 * (needed + arena.PAGE) + 2 * arena.PAGE
    return (
        "the state has %s, but a slot of the checkpoint memory has %s; with %d slots checkpointMemory "
        "(--checkpoint-memory) must be at least %s; until then torch.save writes to storage before it returns"
        % (mebibytes(needed), mebibytes(arena.room(divided)), divided.slots, mebibytes(needed_memory))
    )


def wrap_files():
    """Copying or renaming the saved file, or a folder above it, waits until the save is on storage; removing the folder
    waits until no thread writes in it."""
    for name in ("rename", "replace", "link"):
        builtin_wrappers.wrap(name, _settled)
    for name in ("copyfile", "copytree", "rmtree"):
        real = getattr(shutil, name)
        setattr(shutil, name, functools.wraps(real)(functools.partial(_settled, real)))


def _settled(real, *args, **kwargs):
    mine, src = _mine, args[0] if args else kwargs.get("src", kwargs.get("path"))
    if mine is not None and mine.pid == os.getpid() and (mine.is_it(src) or mine.is_under(src)):
        mine.settle()
    return real(*args, **kwargs)
