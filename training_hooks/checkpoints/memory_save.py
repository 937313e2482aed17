"""What a rank does for `checkpoint.save`: the copy in memory, and behind the training's back the rest.

Whatever fails there is told, and training goes on. One rank of a member copies a state that is the same on all ranks,
and rank 0 writes it to storage; of sharded states each rank does both.
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
    "there is no memory for checkpoints, and no path to save to: declare some (--checkpoint-memory 2Gi of outrider "
    "run, checkpointMemory of the ElasticJob, or the annotation outrider.dev/checkpoint-memory), or say path="
)
SEAL_PATIENCE = 30.0
"""Seconds that a process which ends by an error waits for the checksums of its last save."""
NOT_SAVED = "state not saved"
BEHIND = (
    "a save of step %d behind one of step %d is not kept, nor are others like it: a version is known by its step, so "
    "each save needs a greater one than the save before"
)

NOT_TAKEN = (
    "saves come faster than another member takes over their copies: those that come meanwhile are not kept in memory"
)

Job = collections.namedtuple("Job", "copy path counted positions began")
"""A save that is in memory. `path`: where it is written to, None: nowhere."""


class CheckpointError(RuntimeError):
    """What cannot be saved or loaded; the sentence says why and what may be done."""


def number(name, otherwise):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


class Rank:
    """This process's part. `here`: its worker, None outside of Outrider; `memory`: None where there is none."""

    def __init__(self):
        self.pid, self.here = os.getpid(), worker.current() or worker.observed()
        self.rank, self.world = number("RANK", 0), number("WORLD_SIZE", 1)
        self.local_rank = number("LOCAL_RANK", 0)
        self.generation = (self.here.generation[0] << 32 | self.here.generation[1]) if self.here else 0
        self.said, self.kind, self.loads = set(), None, 0
        self.newest = None
        """(the step, its copy) of the last save to memory, or of a load."""
        self.dropped, self.wanted = set(), {}
        """What was given up last because a save had taken its place ("seal", "store"); by path the step saved last."""
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

    def tell(self, word, sentence, warning=False, **detail):
        if self.here is not None:
            self.here.tell_data(word, sentence, warning, detail)

    def warn(self, sentence):
        """Each sentence once."""
        if sentence not in self.said:
            self.said.add(sentence)
            self.tell(NOT_SAVED, sentence, True)

    def finish(self):
        """At the end of the process. One that ends by an error does not keep its job waiting for the storage."""
        has_failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
        self.sealing.wait(SEAL_PATIENCE if has_failed else None)
        if not has_failed:
            self.storing.wait()

    # -- in the training's time ---------------------------------------------------------------------------------------
    def save(self, state, step, path, kind):
        if self.kind not in (None, kind):
            raise CheckpointError("a script saves its state sharded, or the same on all ranks, not both")
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
        """Without memory: an ordinary save, which raises what an ordinary one raises."""
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
            self.wanted[path] = copy.head.step
            self.sealing.give(path, Job(copy, path, enclosed["counted"], (), began))
        elif path is not None:
            self.sealing.wait()
            self.storing.wait()  # an older one would take its place there
            self._save_alone(enclosed, path, kind)

    def _is_behind(self, enclosed, path):
        """A version is its step and generation: of two states with the same ones some ranks would load the one, and
        some the other. What is in memory already may still have to be written to a path."""
        step, (newest, copy) = enclosed["step"], self.newest
        if step > newest or (step == newest and copy is None):
            return False
        if step == newest and path is not None:
            self.sealing.wait()
            self.wanted[path] = step
            self.storing.give(path, Job(copy, path, enclosed["counted"], (), time.monotonic()))
        elif BEHIND not in self.said:
            self.said.add(BEHIND)
            self.tell(NOT_SAVED, BEHIND % (step, newest), step < newest)
        return True

    def _taken(self, packed, about, path):
        """None where it is not kept. It waits only where saves come faster than their checksums, or those to storage
        faster than they are written."""
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
        except OSError as error:  # no misuse: the training goes on
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
        except Exception as error:  # the training goes on
            self.warn("%s is not kept in memory: %s" % (self.named(copy.head), sentence(error)))

    def store(self, job):
        """Whether it is on storage."""
        copy, path = job.copy, job.path
        try:
            done = self._in_place("store", copy, path, lambda: self._write_copy(job))
            if done:
                self.here.saved(path, job.counted, job.began)
            return done
        except Exception as error:  # the training goes on
            self.warn("%s could not be written to %s: %s" % (self.named(copy.head), path, sentence(error)))
            return False

    def _in_place(self, what, copy, path, work):
        """Whether it was done before a save took the copy's place. Where the one before it was given up, this one keeps
        its place."""
        if what in self.dropped:
            self.memory.pinned[what] = copy.slot
        try:
            done = work()
        finally:
            self.memory.pinned.pop(what, None)
        (self.dropped.discard if done else self.dropped.add)(what)
        if not done and path is not None and self.wanted.get(path) == copy.head.step:
            self.warn("%s was not written to %s: the next saves came before it was" % (self.named(copy.head), path))
        return done

    def _write_copy(self, job):
        copy, path = job.copy, job.path
        if not copy.is_there():
            return False
        enclosed = copy.state(copy=False)
        return copy.is_there() and self._write(enclosed, path, copy.head.kind, copy.is_there)

    def _write(self, enclosed, path, kind, still=None):
        """True where it is there now."""
        try:
            return self._put(enclosed, path, kind, still)
        except overtaken.Overtaken as error:
            self.here.told_overtaken(error)
            return False

    def _put(self, enclosed, path, kind, still):
        page = self.here.page if self.here is not None else None
        if kind != arena.SHARDED:
            return storage_tier.write(path, enclosed, page, still, lambda lack: self._told_room(path, lack))
        target = storage_tier.shard(path, (enclosed["step"], self.generation), self.rank, self.world)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        done = storage_tier.write(target, enclosed, page, still)
        if self.rank == 0:
            storage_tier.clean(path, self.world)
        return done

    def _told_room(self, path, lack):
        if self.here is not None:
            self.here.told_room(path, lack)


def _packed(enclosed, kind):
    try:
        return state_codec.Packed(enclosed, () if kind == arena.SHARDED else state_codec.SHARDED)
    except state_codec.NotSaved as error:
        hint = ": say sharded=True" if "sharded" in str(error) else ""
        raise CheckpointError("%s%s" % (error, hint))


def _too_big(error):
    wanted = error.slots * (error.needed + arena.PAGE) + 2 * arena.PAGE
    return (
        "the state has %s, and a place for one in the memory for checkpoints %s: there are %d places, so "
        "checkpointMemory has to be %s at the least"
        % (mebibytes(error.needed), mebibytes(error.room), error.slots, mebibytes(wanted))
    )


def sentence(error):
    return "%s: %s" % (type(error).__name__, str(error).partition("\n")[0])
