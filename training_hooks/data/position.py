"""The data position of a worker process: written with its checkpoints, taken up by its loads, said to the sidecar.

With OUTRIDER_ELASTIC_DATA a pass goes on behind the loaded position; without it the position is kept in the member's
volume and only says how many samples a resume repeats. With OUTRIDER_KEEP_GLOBAL_BATCH, the ranks of the job's first
world, loaders get a batch size with which the global batch is what it was there.

Nothing here raises into the training: what cannot be done is said once, and the loader is left to torch.
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
    """A method that gives `otherwise` where it fails, and says why."""

    def wrap(method):
        def call(self, *args):
            try:
                return method(self, *args)
            except Exception as error:  # the training goes on as without us
                self.say(NOT_ELASTIC, "the data is left as it is: %s: %s" % (type(error).__name__, error), True)
                return otherwise

        return call

    return wrap


class Book:
    """`made(one, asked)` is a number that changes with each step; `say(word, sentence, warning, **detail)` tells it."""

    def __init__(self, made, tell, environ, volume):
        self.samplers = data_consumed.Samplers()
        self.made, self.tell = made, tell
        self.elastic = environ.get("OUTRIDER_ELASTIC_DATA") == "1"
        self.first_world = int(environ.get("OUTRIDER_KEEP_GLOBAL_BATCH") or 0)
        self.generation = environ.get("OUTRIDER_GENERATION", "0.0")
        self.rank = int(environ.get("RANK") or 0)
        self.volume = None if self.elastic else volume
        self.pending = {}
        """By key: (position, file) of the loads before the first step."""
        self.agreed, self.turns, self.said, self.later = {}, {}, set(), {}
        self.refused = weakref.WeakKeyDictionary()
        """Why a loader keeps its batch size; told where it is trained on: a framework may make another of it."""
        self.tells_whole = False
        """Who asks for lengths now means whole epochs (`lightning_loop`)."""

    def say(self, word, sentence, warning=False, **detail):
        if (word, sentence) not in self.said:
            self.said.add((word, sentence))
            self.tell(word, sentence, warning, detail)

    # -- passes -------------------------------------------------------------------------------------------------------
    @guarded()
    def loader_made(self, loader):
        if self.first_world:
            word, sentence = batch_sizes.adapt(self.samplers, loader, self.first_world, _torch_data())
            if word == batch_sizes.KEPT:
                self.say(KEPT, sentence)
            elif word:
                self.refused[loader] = sentence

    @guarded()
    def length(self, sampler):
        """What is left of a pass that began behind a position, until the sampler's next one; of whole epochs with
        batches of ours what they have. None: torch's own."""
        one = self.samplers.newest.get(sampler)
        if one is not None and one.cut and one.epoch == sampler.epoch and not self.tells_whole:
            return one.count
        whole = self.samplers.wholes.get(sampler)
        if not whole or whole % sampler.num_replicas == 0:
            return None
        return self._pass(sampler, whole, 0, 0, sampler in self.samplers.dropping).count

    @guarded()
    def begin(self, loader):
        """The pass that this loader is about to make."""
        sampler, training = loader.sampler, sys.modules["torch"].is_grad_enabled()
        if training and loader in self.refused:
            self.say(NOT_KEPT, self.refused.pop(loader), True)
        why = data_consumed.not_plain(loader, _torch_data()) or lightning_loop.unknown()
        if why is not None:
            if training and self.elastic:
                self.say(NOT_ELASTIC, "a DataLoader is left as it is: %s" % why)
            return None
        batch = self.samplers.asked.get(sampler) or data_consumed.batch_of(loader)
        whole = self.samplers.wholes.get(sampler) or batch * sampler.num_replicas
        position, file = self._position(sampler) if training else (None, "")
        resumed, position = (None, position) if self.elastic else (position, None)
        one = self._pass(sampler, whole, position["consumed"] if position else 0, batch, loader.drop_last)
        if position:
            self._say_loaded(one, position, file)
            self._doubt_batch(position, batch)
        self.samplers.fresh[sampler] = one
        if not training:
            return None
        if resumed is not None:
            one.first_step = lambda: self._say_repeated(one, resumed)
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
            return  # the checkpoint itself has gone meanwhile
        except position_file.Unusable as unusable:
            self.say(IGNORED, "the data position is not taken up: %s" % unusable, True)
            return
        self._take_up(found, file)

    @guarded()
    def take_up(self, found, source):
        """The positions that were saved within a state."""
        if not self.samplers.trained():
            self._take_up([each for each in found if position_file.is_position(each)], source)

    def _take_up(self, found, file):
        for position in found:
            key = position_file.key(position)
            known = self.pending.get(key)
            if known is None or _far(position) > _far(known[0]):
                self.pending[key] = (position, file)

    def _position(self, sampler):
        """(behind which a pass of training begins, the file that it was in); None: at the beginning."""
        key, newest = self.samplers.key(sampler), self.samplers.newest.get(sampler)
        if newest is not None and (newest.over or newest.steps() > 0):
            self.pending.pop(key, None)
            return None, ""
        position, file = self.pending.get(key, (None, ""))
        if self.elastic:
            if position is None and self.pending:
                self._say_of_others(key)
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
            why = "its sampler has %d ranks, and the process group has not just these" % world
            self.say(NOT_ELASTIC, "a DataLoader is left as it is: %s" % why, position is not None)
            return None
        name = "%s/%s/%d" % (self.generation, "-".join(map(str, key)), turn)
        agreed, why = rank_consensus.agree(store, name, world, position)
        if why:
            agreed = self.agreed.get(key)
            self.say(IGNORED, "the data position is not taken up: %s" % why, True)
        self.agreed[key] = agreed
        return agreed

    def _say_loaded(self, one, position, file):
        done, length, before = position["consumed"], position["length"], position["world"]
        sentence = (
            "rank %d goes on in epoch %d behind %d of %d samples, %d are left for it; the world had %s and has %d"
        )
        said = sentence % (one.rank, one.epoch, done, length, one.count, _ranks(before), one.world)
        said += " (%s)" % os.path.basename(file) if file else ""
        detail = {"epoch": one.epoch, "done": done, "length": length, "left": one.count}
        self.say(LOADED, said, world_before=before, world=one.world, **detail)

    def _doubt_batch(self, position, batch):
        if self.first_world and position["batch"] != batch:
            sentence = (
                "the script says a batch size of %d where it said %d when the checkpoint was saved: if it follows the "
                "world's size by itself, the global batch is now changed twice; do without --keep-global-batch"
            )
            self.say(NOT_KEPT, sentence % (batch, position["batch"]), True)

    def _say_of_others(self, mine):
        for key, (_, file) in self.pending.items():
            if key[:4] != mine[:4]:
                sentence = "the data position in %s is not taken up: it is of %s, and this sampler has %s"
                self.say(IGNORED, sentence % (file, _about(key), _about(mine)), True)

    def _say_repeated(self, one, position):
        """At the first step of a pass that begins at the beginning. A script that takes the batches of the checkpoint
        without a step on them has left them out itself, but for those of a batch that is cut."""
        one.first_step = None
        done, length = position["consumed"], position["length"]
        left_out = sharding.consumed(length, 0, one.whole, one.delivered - 1)
        again = done if left_out + one.whole < done else max(0, done - left_out)
        if again:
            sentence = (
                "epoch %d begins again: %d of its %d samples are in the loaded checkpoint already and are trained on "
                "again (elasticData of the job, or outrider run --elastic-data, goes on behind them)"
            )
            self.say(REPEATED, sentence % (one.epoch, again, length), epoch=one.epoch, samples=again)

    # -- saves --------------------------------------------------------------------------------------------------------
    @guarded(())
    def recorded(self):
        """The positions of this moment."""
        return self.samplers.recorded()

    @guarded()
    def saved(self, checkpoint, written, found=None):
        """The checkpoint that will be at this path is complete at `written`; `found`: of another moment."""
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
            self.say(NOT_WRITTEN, "%s could not be written: %s" % (file, error.strerror or error), True)

    @guarded()
    def will_be_saved(self, checkpoint):
        """An asynchronous save has taken its copy of the state."""
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
