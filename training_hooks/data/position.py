"""The data position of a worker process: saved with checkpoints, restored by loads, reported to the sidecar.

With OUTRIDER_ELASTIC_DATA a pass continues after the loaded position. Without it the position is kept in the member's
volume, and only shows how many samples a resume repeats. With OUTRIDER_KEEP_GLOBAL_BATCH, the number of ranks of the
job's first generation, loaders get a batch size that keeps the global batch of that generation.

Nothing here raises into training: a failure is reported once, and the loader behaves as in torch.
"""

import os
import sys
import weakref

from . import batch_sizes, lightning_loop, position_file, rank_consensus, sharding
from . import consumed as data_consumed

LOADED, IGNORED, REPEATED = "loaded", "ignored", "repeated"
NOT_ELASTIC, NOT_WRITTEN = "not elastic", "not written"
KEPT, NOT_KEPT = "kept", "not kept"


def guarded(otherwise=None):
    """Makes a method return `otherwise` if it fails, and report why."""

    def wrap(method):
        def call(self, *args):
            try:
                return method(self, *args)
            except Exception as error:  # training continues as without Outrider
                self.report(NOT_ELASTIC, "elastic data is not applied: %s: %s" % (type(error).__name__, error), True)
                return otherwise

        return call

    return wrap


class Book:
    """`made(one, asked)` is a number that changes with each step; `report(word, sentence, …)` sends a message once."""

    def __init__(self, made, send, environ, volume):
        self.samplers = data_consumed.Samplers()
        self.made, self.send = made, send
        self.elastic = environ.get("OUTRIDER_ELASTIC_DATA") == "1"
        self.first_world = int(environ.get("OUTRIDER_KEEP_GLOBAL_BATCH") or 0)
        self.generation = environ.get("OUTRIDER_GENERATION", "0.0")
        self.rank = int(environ.get("RANK") or 0)
        self.volume = None if self.elastic else volume
        self.pending = {}
        """(position, file) of the loads before the first step, by key."""
        self.agreed, self.turns, self.reported, self.later = {}, {}, set(), {}
        self.refused = weakref.WeakKeyDictionary()
        """Why a loader keeps its batch size; reported once it is trained on, since a framework may replace it
        before."""
        self.tells_whole = False
        """Whether lengths mean whole epochs now (`lightning_loop`)."""

    def report(self, word, sentence, warning=False, **detail):
        if (word, sentence) not in self.reported:
            self.reported.add((word, sentence))
            self.send(word, sentence, warning, detail)

    # -- passes -------------------------------------------------------------------------------------------------------
    @guarded()
    def loader_made(self, loader):
        if self.first_world:
            word, sentence = batch_sizes.adapt(self.samplers, loader, self.first_world, _torch_data())
            if word == batch_sizes.KEPT:
                self.report(KEPT, sentence)
            elif word:
                self.refused[loader] = sentence

    @guarded()
    def length(self, sampler):
        """The length of a pass that began at a position, until the sampler's next one; or that of whole epochs whose
        batches were changed. None: torch's own."""
        one = self.samplers.newest.get(sampler)
        if one is not None and one.cut and one.epoch == sampler.epoch and not self.tells_whole:
            return one.count
        whole = self.samplers.wholes.get(sampler)
        if not whole or whole % sampler.num_replicas == 0:
            return None
        return self._pass(sampler, whole, 0, 0, sampler in self.samplers.dropping).count

    @guarded()
    def begin(self, loader):
        """The pass that this loader is about to make, or None if the loader is not changed."""
        sampler, training = loader.sampler, sys.modules["torch"].is_grad_enabled()
        if training and loader in self.refused:
            self.report(NOT_KEPT, self.refused.pop(loader), True)
        why = data_consumed.not_plain(loader, _torch_data()) or lightning_loop.unknown()
        if why is not None:
            if training and self.elastic:
                self.report(NOT_ELASTIC, "elastic data is not applied to a DataLoader: %s" % why)
            return None
        batch = self.samplers.script_batches.get(sampler) or data_consumed.batch_of(loader)
        whole = self.samplers.wholes.get(sampler) or batch * sampler.num_replicas
        position, file = self._position(sampler) if training else (None, "")
        resumed, position = (None, position) if self.elastic else (position, None)
        one = self._pass(sampler, whole, position["consumed"] if position else 0, batch, loader.drop_last)
        if position:
            self._report_loaded(one, position, file)
            self._compare_batch(position, batch)
        self.samplers.fresh[sampler] = one
        if not training:
            return None
        if resumed is not None:
            one.first_step = lambda: self._report_repeated(one, resumed)
        self.samplers.newest[sampler] = one
        return one

    @guarded()
    def left_for_lightning(self, fit_loop):
        return lightning_loop.left(self.samplers, fit_loop)

    def _pass(self, sampler, whole, start, batch, drop_batch):
        key = self.samplers.key(sampler)
        world, rank = sampler.num_replicas, sampler.rank
        return data_consumed.Pass(key, sampler.epoch, start, whole, world, rank, batch, drop_batch, self.made)

    # -- loads --------------------------------------------------------------------------------------------------------
    @guarded()
    def loaded(self, checkpoint):
        if self.samplers.trained():
            return
        try:
            found, file = position_file.read(checkpoint, self.volume)
        except OSError:
            return  # the checkpoint itself has been removed meanwhile
        except position_file.Unusable as unusable:
            self.report(IGNORED, "the data position is not used: %s" % unusable, True)
            return
        self._take_up(found, file)

    @guarded()
    def take_up(self, found, source):
        """Restores the positions that were saved within a state."""
        if not self.samplers.trained():
            self._take_up([each for each in found if position_file.is_position(each)], source)

    def _take_up(self, found, file):
        for position in found:
            key = position_file.key(position)
            known = self.pending.get(key)
            if known is None or _far(position) > _far(known[0]):
                self.pending[key] = (position, file)

    def _position(self, sampler):
        """(position after which a training pass begins, its file); None for the position if it begins at the
        beginning."""
        key, newest = self.samplers.key(sampler), self.samplers.newest.get(sampler)
        if newest is not None and (newest.over or newest.steps() > 0):
            self.pending.pop(key, None)
            return None, ""
        position, file = self.pending.get(key, (None, ""))
        if self.elastic:
            if position is None and self.pending:
                self._report_others(key)
            position = self._agreed(sampler, key, position)
        is_its = position is not None and position["epoch"] == sampler.epoch and position["consumed"]
        return (position, file) if is_its else (None, "")

    def _agreed(self, sampler, key, position):
        world = sampler.num_replicas
        if world == 1:
            return position
        turn = self.turns[key] = self.turns.get(key, 0) + 1
        store = rank_consensus.store_of(world)
        if store is None:
            why = "its sampler has %d ranks, and the process group has another number" % world
            self.report(NOT_ELASTIC, "elastic data is not applied to a DataLoader: %s" % why, position is not None)
            return None
        name = "%s/%s/%d" % (self.generation, "-".join(map(str, key)), turn)
        agreed, why = rank_consensus.agree(store, name, world, position)
        if why:
            agreed = self.agreed.get(key)
            self.report(IGNORED, "the data position is not used: %s" % why, True)
        self.agreed[key] = agreed
        return agreed

    def _report_loaded(self, one, position, file):
        done, length, before = position["consumed"], position["length"], position["world"]
        sentence = (
            "rank %d continues epoch %d after %d of %d samples, with %d left for it; the generation had %s before and "
            "has %d now"
        )
        message = sentence % (one.rank, one.epoch, done, length, one.count, _ranks(before), one.world)
        message += " (%s)" % os.path.basename(file) if file else ""
        detail = {"epoch": one.epoch, "done": done, "length": length, "left": one.count}
        self.report(LOADED, message, world_before=before, world=one.world, **detail)

    def _compare_batch(self, position, batch):
        if self.first_world and position["batch"] != batch:
            sentence = (
                "the script's batch size is %d, but was %d when the checkpoint was saved: if the script adapts it to "
                "the world size, the global batch is now changed twice; run without --keep-global-batch"
            )
            self.report(NOT_KEPT, sentence % (batch, position["batch"]), True)

    def _report_others(self, mine):
        for key, (_, file) in self.pending.items():
            if key[:4] != mine[:4]:
                sentence = "the data position in %s is not used: it is of %s, but this sampler has %s"
                self.report(IGNORED, sentence % (file, _about(key), _about(mine)), True)

    def _report_repeated(self, one, position):
        """Called at the first step of a pass that begins at the beginning. A script that takes the checkpoint's batches
        without a step has skipped them itself, except those of a batch that is cut."""
        one.first_step = None
        done, length = position["consumed"], position["length"]
        left_out = sharding.consumed(length, 0, one.whole, one.delivered - 1)
        again = done if left_out + one.whole < done else max(0, done - left_out)
        if again:
            sentence = (
                "epoch %d starts over: %d of its %d samples were used before the loaded checkpoint and are "
                "trained on again (use elasticData of the job, or outrider run --elastic-data, to continue after them)"
            )
            self.report(REPEATED, sentence % (one.epoch, again, length), epoch=one.epoch, samples=again)

    # -- saves --------------------------------------------------------------------------------------------------------
    @guarded(())
    def recorded(self):
        """The positions of this moment."""
        return self.samplers.recorded()

    @guarded()
    def saved(self, checkpoint, written, found=None):
        """Saves the positions with a checkpoint whose complete file is at `written`; `found`: positions of another
        moment."""
        found = self.samplers.recorded() if found is None else found
        if not found:
            return
        file = position_file.place(checkpoint, self.volume)
        try:
            if self.volume is not None:
                os.makedirs(os.path.dirname(file), exist_ok=True)
            position_file.write(file, position_file.fingerprint(written), found)
            if self.volume is not None:
                position_file.keep_few(os.path.dirname(file))
        except OSError as error:
            self.report(NOT_WRITTEN, "%s could not be written: %s" % (file, error.strerror or error), True)

    @guarded()
    def will_be_saved(self, checkpoint):
        """Records the positions when an asynchronous save has taken its copy of the state."""
        self.later[os.path.realpath(checkpoint)] = self.samplers.recorded()

    def for_save(self, checkpoint):
        return self.later.pop(os.path.realpath(checkpoint), None)


def _far(position):
    return (position["epoch"], position["consumed"])


def _about(key):
    length, seed, shuffle, drop_last, _ = key
    order = "shuffled with seed %d" % seed if shuffle else "in their own order"
    return "%d samples %s%s" % (length, order, " without the last few" if drop_last else "")


def _ranks(count):
    return "%d rank%s" % (count, "" if count == 1 else "s")


def _torch_data():
    return sys.modules["torch.utils.data"]
