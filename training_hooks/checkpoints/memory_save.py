"""The work of one rank for `checkpoint.save`: the copy in memory, then the rest in the background.

A failure in the background is reported, and training continues. If the state is the same on all ranks, one rank of each
member copies it, and rank 0 writes it to storage; of a sharded state each rank does both.
"""

import collections
import os
import sys
import time

from ..abi import arena
from ..process import exit_hooks
from ..rank import worker
from . import memory_tier, overtaken, state_codec, storage_tier
from .reservation import VARIABLE, mebibytes

NO_MEMORY = (
    "checkpoint.save: Required value: there is neither checkpoint memory nor a path; declare memory "
    "(--checkpoint-memory 2Gi of outrider run, checkpointMemory of the ElasticJob, or the annotation "
    "outrider.dev/checkpoint-memory), or pass path="
)
SEAL_PATIENCE = 30.0
"""Seconds that a process which ends by an error waits for the checksums of its last save."""
NOT_SAVED = "state not saved"
BEHIND = (
    "the save of step %d after one of step %d is skipped: a version is identified by its step, so each save needs a "
    "greater step than the one before; further saves like this are skipped too"
)

NOT_TAKEN = "saves come faster than another member receives their replicas; the saves in between are not kept in memory"

Job = collections.namedtuple("Job", "copy path counted positions began")
"""A save that is in memory. `path`: the file to write, or None if there is none."""


class CheckpointError(RuntimeError):
    """A state cannot be saved or loaded; the message has the reason and the fix.

    >>> from training_hooks import checkpoint
    >>> try:
    ...     checkpoint.save({"epoch": 1}, step=-1)
    ... except checkpoint.CheckpointError as error:
    ...     print(error)
    step: Invalid value: -1: must be from 0 to 4611686018427387903
    """


def number(name, otherwise):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


class Rank:
    """The checkpoints of this process. `here`: its worker, or None without a job; `memory`: None if the job has
    none."""

    def __init__(self):
        self.pid, self.here = os.getpid(), worker.current() or worker.observed()
        self.rank, self.world = number("RANK", 0), number("WORLD_SIZE", 1)
        self.local_rank = number("LOCAL_RANK", 0)
        self.generation = (self.here.generation[0] << 32 | self.here.generation[1]) if self.here else 0
        self.reported, self.kind, self.loads = set(), None, 0
        self.newest = None
        """(step, copy) of the last save to memory or of the last load."""
        self.dropped, self.newest_by_path = set(), {}
        """`dropped`: the tasks ("seal", "store") that were abandoned last because a newer save took the slot.
        `newest_by_path`: the step saved last, by path."""
        self.memory = self._memory()
        self.sealing = memory_tier.Newest(self._seal, "outrider-seal")
        self.storing = memory_tier.Newest(self.store, "outrider-store")
        exit_hooks.before(self.finish)

    def _memory(self):
        if self.here is None or not os.environ.get(VARIABLE):
            return None
        try:
            return memory_tier.Memory(self.here.volume, self.local_rank, number("LOCAL_WORLD_SIZE", 1))
        except (OSError, ValueError) as error:
            self.warn("checkpoints are not kept in memory: %s" % error)
            return None

    def report(self, word, sentence, warning=False, **detail):
        if self.here is not None:
            self.here.report_data(word, sentence, warning, detail)

    def warn(self, sentence):
        """Reports each sentence once."""
        if sentence not in self.reported:
            self.reported.add(sentence)
            self.report(NOT_SAVED, sentence, True)

    def finish(self):
        """Runs at the end of the process. After an error the job does not wait for the storage."""
        has_failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
        self.sealing.wait(SEAL_PATIENCE if has_failed else None)
        if not has_failed:
            self.storing.wait()

    # -- in the training thread ---------------------------------------------------------------------------------------
    def save(self, state, step, path, kind):
        if self.kind not in (None, kind):
            raise CheckpointError(
                "sharded: Forbidden: a script saves either sharded states or states equal on all ranks, not both"
            )
        self.kind = kind
        if self.memory is None and path is None:
            raise CheckpointError(NO_MEMORY)
        writes = kind == arena.SHARDED or self.rank == 0
        if self.memory is None:
            if writes:
                self._save_alone(self._enclosed(state, step), path, kind)
        elif kind == arena.SHARDED or self.local_rank == 0:
            self._remember(self._enclosed(state, step), path if writes else None, kind)

    def _enclosed(self, state, step):
        counted, positions = step, []
        if self.here is not None:
            counted = self.here.steps_made()
            positions = self.here.data.recorded() if self.here.data is not None else []
        return storage_tier.envelope(state, step, self.generation, counted, positions)

    def _save_alone(self, enclosed, path, kind):
        """Saves without memory: an ordinary save, which raises what an ordinary one raises."""
        if self.here is None:
            self._write(enclosed, path, kind)
            return
        began = self.here.begin_save()
        done = False
        try:
            done = self._write(enclosed, path, kind)
        finally:
            self.here.end_save(done)
        if done:
            self.here.saved(path, enclosed["counted"], began)

    def _remember(self, enclosed, path, kind):
        if self.newest is not None and self._is_behind(enclosed, path):
            return
        packed = _packed(enclosed, kind)
        about = arena.Head(
            arena.VERSION, 0, enclosed["step"], self.generation, self.rank, self.world, kind,
            sealed=0, length=packed.length, crc32=0, quick=0,
        )  # fmt: skip
        began = time.monotonic()
        copy = self._taken(packed, about, path)
        self.newest = about.step, copy
        if copy is not None:
            self.newest_by_path[path] = copy.head.step
            self.sealing.give(path, Job(copy, path, enclosed["counted"], (), began))
        elif path is not None:
            self.sealing.wait()
            self.storing.wait()  # else an older save could replace the file later
            self._save_alone(enclosed, path, kind)

    def _is_behind(self, enclosed, path):
        """Whether this save adds no version. A version is its step and generation: of two states with the same pair
        some ranks would load one, and some the other. A copy in memory may still have to be written to a path."""
        step, (newest, copy) = enclosed["step"], self.newest
        if step > newest or (step == newest and copy is None):
            return False
        if step == newest and path is not None:
            self.sealing.wait()
            self.newest_by_path[path] = step
            self.storing.give(path, Job(copy, path, enclosed["counted"], (), time.monotonic()))
        elif BEHIND not in self.reported:
            self.reported.add(BEHIND)
            self.report(NOT_SAVED, BEHIND % (step, newest), step < newest)
        return True

    def _taken(self, packed, about, path):
        """The copy in memory, or None if there is no slot for it. Training waits here only if saves come faster than
        their checksums, or saves to storage faster than they are written."""
        self.here.begin_save()
        copy = None
        try:
            copy = self.memory.take(packed, about)
            if copy is None and (path is not None or "seal" in self.memory.pinned):
                self.sealing.wait()
                copy = self.memory.take(packed, about)
            if copy is None and path is not None:
                self.storing.wait()
                copy = self.memory.take(packed, about)
            if copy is None and "store" in self.memory.pinned:
                self.warn("step %d is not saved: the one before it is still being written to storage" % about.step)
            elif copy is None:
                self.warn(NOT_TAKEN)
            return copy
        except memory_tier.TooBig as error:
            raise CheckpointError(_too_big(error))
        except arena.Unusable as error:
            raise CheckpointError(str(error))
        except OSError as error:  # not the script's fault: training continues
            self.warn("step %d is not kept in memory: %s" % (about.step, sentence(error)))
            return None
        finally:
            self.here.end_save(copy is not None)

    # -- in the background --------------------------------------------------------------------------------------------
    def named(self, head):
        return "step %d" % head.step

    def _seal(self, job):
        copy, path = job.copy, job.path
        try:
            if not self._in_place("seal", copy, path, copy.seal):
                return
            self.here.remembered(copy.head, job.counted)
            if path is not None:
                self.storing.give(path, job)
        except Exception as error:  # training continues
            self.warn("%s is not kept in memory: %s" % (self.named(copy.head), sentence(error)))

    def store(self, job):
        """Writes the file; returns whether it is on storage."""
        copy, path = job.copy, job.path
        try:
            done = self._in_place("store", copy, path, lambda: self._write_copy(job))
            if done:
                self.here.saved(path, job.counted, job.began)
            return done
        except Exception as error:  # training continues
            self.warn("%s could not be written to %s: %s" % (self.named(copy.head), path, sentence(error)))
            return False

    def _in_place(self, what, copy, path, work):
        """Runs a task on a copy; returns whether it was done before a save took the slot. If the task before it was
        abandoned, this copy keeps its slot."""
        if what in self.dropped:
            self.memory.pinned[what] = copy.slot
        try:
            done = work()
        finally:
            self.memory.pinned.pop(what, None)
        (self.dropped.discard if done else self.dropped.add)(what)
        if not done and path is not None and self.newest_by_path.get(path) == copy.head.step:
            self.warn("%s was not written to %s: newer saves replaced it first" % (self.named(copy.head), path))
        return done

    def _write_copy(self, job):
        copy, path = job.copy, job.path
        if not copy.is_there():
            return False
        enclosed = copy.state(copy=False)
        return copy.is_there() and self._write(enclosed, path, copy.head.kind, copy.is_there)

    def _write(self, enclosed, path, kind, still=None):
        """Writes the file; returns True if it is at its place now."""
        try:
            return self._put(enclosed, path, kind, still)
        except overtaken.Overtaken as error:
            self.here.report_overtaken(error)
            return False

    def _put(self, enclosed, path, kind, still):
        page = self.here.page if self.here is not None else None
        if kind != arena.SHARDED:
            return storage_tier.write(path, enclosed, page, still, lambda lack: self._report_room(path, lack))
        target = storage_tier.shard(path, (enclosed["step"], self.generation), self.rank, self.world)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        done = storage_tier.write(target, enclosed, page, still)
        if self.rank == 0:
            storage_tier.clean(path, self.world)
        return done

    def _report_room(self, path, lack):
        if self.here is not None:
            self.here.report_room(path, lack)


def _packed(enclosed, kind):
    try:
        return state_codec.Packed(enclosed, () if kind == arena.SHARDED else state_codec.SHARDED)
    except state_codec.NotSaved as error:
        hint = "; pass sharded=True" if "sharded" in str(error) else ""
        raise CheckpointError("%s%s" % (error, hint))


def _too_big(error):
    needed = error.slots * (error.needed + arena.PAGE) + 2 * arena.PAGE
    return (
        "the state has %s, but a slot of the checkpoint memory has %s; with %d slots checkpointMemory "
        "(--checkpoint-memory) must be at least %s"
        % (mebibytes(error.needed), mebibytes(error.room), error.slots, mebibytes(needed))
    )


def sentence(error):
    return "%s: %s" % (type(error).__name__, str(error).partition("\n")[0])
