"""The worker side: everything that runs in a training process after it was forked, or started by a launcher.

A child forked from a worker process (a DataLoader worker) is none: its steps and saves are not the rank's. What is
wrapped for it is in `patches`.
"""

import atexit
import os
import threading
import time

from ..abi import arena, progress_page, rank_files
from ..data import lightning_loop, loader_hooks, position
from ..process import exception_report, import_hooks, worker_channel
from ..telemetry import stacks, step_counter, step_window
from . import checkpoint_opens, checkpoint_reads, known_checkpoints, save_group

NOT_ATOMIC, ATOMIC = "not atomic", "atomic"
OVERTAKEN, FULL = "overtaken", "no room"
OVER = (
    "%s is written over, because there is no room beside it for a second file (%s): a kill in such a save leaves no "
    "checkpoint there; the disk needs room for two"
)
VERDICT = 10.0
"""Seconds in which the master decides whether a script has started over."""
WHOLE_AGAIN = "checkpoints are whole again: the new file has room beside the old one"
_current = None
_told_of_saves = _when_active = None


def tell_of_saves(call):
    """`call(path)` at each checkpoint of this rank from now on."""
    global _told_of_saves
    _told_of_saves = call


def when_active(call):
    """`call(worker)` when this process becomes one."""
    global _when_active
    _when_active = call


def current():
    """This process's worker, None where it is none."""
    return _current if _current is not None and _current.pid == os.getpid() else None


def _nothing():
    """Until steps are counted, nobody is told of another phase, or to begin anew."""


class Worker:
    def __init__(self, volume, local_rank, generation, known_before=None):
        self.volume, self.local_rank, self.generation, self.pid = volume, local_rank, list(generation), os.getpid()
        os.makedirs(rank_files.page_folder(volume), exist_ok=True)
        self.page = progress_page.Page(rank_files.page_path(volume, local_rank), *generation)
        self.channel = worker_channel.Channel(volume)
        self.listening = False
        self.series = known_checkpoints.Series()
        self.known = known_before or known_checkpoints.Known()
        self._awaits_verdict = os.environ.get("OUTRIDER_REQUIRE_RESUME") == "1"
        self._newest_before = max(self.known.steps.values(), default=0)
        self.opens = None
        """Looks, until the first step, whether anybody opens one of these (`rank.checkpoint_opens.Opens`)."""
        self.reads = None
        """Looks, until the first step, whether a file is read that may be a checkpoint
        (`rank.checkpoint_reads.Reads`)."""
        self.in_place = set()
        """Paths whose last save went over the old file, for want of room."""
        self._saving, self._save_began, self._save_ended, self._after = 0, 0, 0, progress_page.INIT
        self.together = save_group.Together(lambda message: self.channel.tell("up", message), self._saves_over)
        self.phase_changed = self.begin_anew = _nothing
        self.sampler = step_window.Sampler(self)
        self._is_beginning = True
        self.data = None
        """The book of its data (`data.position.Book`), from its activation on."""
        self.mover = None

    # -- phases -------------------------------------------------------------------------------------------------------
    def phase(self):
        return self.page.words[progress_page.PHASE] & 0xFFFFFFFF

    def phase_name(self):
        is_saved = self.together.waits and not self._saving
        return progress_page.PHASES[min(self._after if is_saved else self.phase(), 3)]

    def stepped(self, step):
        """Called after a step when the page may not say yet that steps are being made, or a window is measured; True
        where the next ones need no look. A step beside a save (an asynchronous one) leaves the page's phase to the
        save."""
        if self._is_beginning:
            self._begun()
        if self.sampler.armed:
            self.sampler.mark(step - self.page.words[progress_page.BASE])
        if self.mover is not None:
            self.mover.stepped(step)
        self.together.passed()
        if self._saving:
            self._after = progress_page.STEP
            return False
        if self.phase() != progress_page.STEP or self.page.words[progress_page.PHASE] >> 32 != self.page.source:
            self.page.set_phase(progress_page.STEP)
        return not self.sampler.armed and (self.mover is None or not self.mover.waits)

    def _begun(self):
        """At the first step of this process."""
        self._is_beginning = False
        words = self.page.words
        words[progress_page.FIRST] = words[progress_page.FIRST] or time.time_ns()
        if self.opens is not None:
            looking, self.opens = self.opens, None
            words[progress_page.OPENED] = looking.seen()
        if self.reads is not None:
            reading, self.reads = self.reads, None
            words[progress_page.OPENED] |= reading.end()

    def evaluates(self):
        self.sampler.spoil()
        self.together.passed()
        if self.phase() == progress_page.STEP:
            self.phase_changed()
            self.page.set_phase(progress_page.EVAL)

    def begin_save(self):
        """The moment, for `saved`."""
        self.sampler.spoil()
        self._saving += 1
        now = time.monotonic_ns()
        if self._saving == 1 and self.together.waits:
            self.page.set((progress_page.BEHIND, 0))
        elif self._saving == 1:
            self._after, self._save_began = self.phase(), now
            self.page.set_phase(progress_page.CHECKPOINT)
        return now / 1e9

    def is_saving(self):
        return self._saving > 0

    def end_save(self, finished, alone=True):
        """`alone`: no other file belongs to the same checkpoint."""
        self.sampler.spoil()
        self._saving -= 1
        if self._saving:
            return
        words, self._save_ended = self.page.words, time.monotonic_ns()
        self.page.set((progress_page.BEHIND, 1 + self._after))
        if finished:
            took = self._save_ended - self._save_began
            self.page.set(
                (progress_page.SAVES, words[progress_page.SAVES] + 1),
                (progress_page.LONGEST, max(words[progress_page.LONGEST], took)),
            )
        if finished and not alone and _in_main_thread():
            self.together.wait(lambda: self._saving)
            self.phase_changed()
        elif not self.together.waits:
            self._saves_over()

    def _saves_over(self):
        if not self._saving:
            self.page.set_phase(self._after)

    # -- checkpoints --------------------------------------------------------------------------------------------------
    def saved(self, path, step=None, began=0.0, is_first=False):
        """`began`: when what is in it was taken. `is_first`: of a path that nothing else says to be a checkpoint."""
        step = self.page.words[progress_page.STEPS] if step is None else step
        print_ = known_checkpoints.fingerprint(path)
        prints = [print_] if print_ else []
        self.known.saved(path, step, prints)
        if _told_of_saves is not None:
            _told_of_saves(path)
        self._tell_saved(
            {
                "first" if is_first else "saved": os.path.abspath(path),
                "step": step,
                "began": began,
                "prints": prints,
                "local_rank": self.local_rank,
                "generation": self.generation,
            }
        )

    def _tell_saved(self, message):
        self.known.note(message.get("saved", message.get("first")), message)
        if (self.together.waits or self._saving) and _in_main_thread():
            self.together.hold(message)
        else:
            self.channel.tell("up", message)

    def renamed(self, old, new, existed):
        """The script has given what lies at `old` another name. What takes the place of an older file, or continues a
        series, is a checkpoint, whatever it was called while it was written."""
        for message, path in self.known.renamed(old, new):
            told = {key: value for key, value in message.items() if key not in ("first", "saved")}
            is_first = "first" in message and not self.series.continues(path, existed)
            told["first" if is_first else "saved"] = path
            self.together.let_go(message)
            self._tell_saved(told)

    def tell_data(self, word, sentence, warning, detail):
        """What there is to say about positions and batches (`data.position.Book`), and of a saved state."""
        about = {
            "rank": int(os.environ.get("RANK", self.local_rank)),
            "local_rank": self.local_rank,
            "generation": self.generation,
        }
        self.channel.tell("up", dict(about, data=word, sentence=sentence, warning=warning, detail=detail))

    def told_room(self, target, lack):
        """`lack`: why this save goes over the old file; None: it is whole."""
        path = os.path.abspath(target)
        if lack is not None and path not in self.in_place:
            self.in_place.add(path)
            self.tell_data(NOT_ATOMIC, OVER % (path, os.strerror(lack.errno)), True, {})
        elif lack is None and path in self.in_place:
            self.in_place.remove(path)
            if not self.in_place:
                self.tell_data(ATOMIC, WHOLE_AGAIN, False, {})

    def told_full(self, target, error):
        """A script may swallow the error, and end with no more than a code."""
        path = os.path.abspath(target)
        try:
            disk = os.statvfs(os.path.dirname(path))
            free = "%d of its %d MiB are free" % (
                disk.f_bavail * disk.f_frsize >> 20,
                disk.f_blocks * disk.f_frsize >> 20,
            )
        except OSError:
            free = "its room is not known"
        sentence = "%s was not saved at step %d: %s (%s)" % (path, self.steps_made(), os.strerror(error.errno), free)
        self.tell_data(FULL, sentence, True, {})

    def told_overtaken(self, error):
        self.tell_data(OVERTAKEN, str(error), True, {})

    def generation_number(self):
        return self.generation[0] << 32 | self.generation[1]

    def loaded(self, path):
        """Before the first step, a checkpoint that the job has written says at which step this process goes on; where
        several are loaded (the best beside the last) the highest."""
        if self.data is not None:
            self.data.loaded(path)
        if self.page.words[progress_page.LAST] == 0:
            self.goes_on_at(self.known.step_of(path))
            if self.reads is not None:
                self.reads.loaded(path)

    def goes_on_at(self, step):
        words = self.page.words
        if words[progress_page.LAST] == 0 and step > words[progress_page.BASE]:
            self.page.set((progress_page.BASE, step), (progress_page.STEPS, step))

    def wait_for_verdict(self):
        """A job that is to end where its script starts over saves nothing before that is decided: a second or two after
        the first step this process is ended, or else another rank has loaded what it goes on from."""
        if self._awaits_verdict and self.may_replace_newer:
            self._awaits_verdict = False
            time.sleep(VERDICT)

    @property
    def may_replace_newer(self):
        """It has begun at 0 although there are checkpoints, and is not past them yet."""
        words = self.page.words
        return words[progress_page.BASE] == 0 and words[progress_page.STEPS] < self._newest_before

    def steps_made(self):
        return self.page.words[progress_page.STEPS]

    def remembered(self, head, counted=0):
        """A copy in memory that counts from now on (`arena.Head`)."""
        about = {"remembered": head.step, "length": head.length, "rank": head.rank, "world": head.world}
        about.update(sharded=head.kind == arena.SHARDED, local_rank=self.local_rank, generation=self.generation)
        if head.kind == arena.MARKED:
            about.update(marked=True, counted=counted)
        self.channel.tell("up", about)


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


def activate(worker):
    """Makes this process that worker."""
    global _current
    _current = worker
    os.environ["OUTRIDER_WORKER"] = str(worker.pid)
    ours, _ = rank_files.error_paths(worker.volume, worker.local_rank)
    os.makedirs(os.path.dirname(ours), exist_ok=True)
    exception_report.install(ours, lambda: worker.page.words[progress_page.LAST])
    worker.stack_file = stacks.install(rank_files.stack_path(worker.volume, worker.local_rank))
    import_hooks.when_imported(
        "torch.utils.data.dataloader",
        lambda module: step_counter.count_batches(worker, lambda: current() is worker, module),
    )
    if worker.opens is None:
        worker.opens = _opens(worker.local_rank, worker.known.steps)
    began = worker.page.words[progress_page.FIRST]
    if began and not worker.known.steps:
        worker.reads = checkpoint_reads.Reads(began / 1e9)
    _keep_book(worker)
    if _when_active is not None:
        _when_active(worker)
    atexit.register(worker.together.passed)


def _opens(local_rank, steps):
    """One look a member: each takes one of the 128 that inotify gives a user."""
    return checkpoint_opens.Opens(steps) if local_rank == 0 and steps else None


def _keep_book(worker):
    def book():
        return worker.data if current() is worker else None

    try:
        worker.data = position.Book(step_counter.counter(worker.page), worker.tell_data, os.environ, worker.volume)
    except ValueError:  # no rank: nobody's data
        return
    import_hooks.when_imported("torch.utils.data.distributed", lambda module: loader_hooks.wrap_samplers(book, module))
    import_hooks.when_imported("torch.utils.data.dataloader", lambda module: loader_hooks.wrap_loaders(book, module))
    lightning_loop.prepare(book, import_hooks.when_imported)


# -- under a launcher -------------------------------------------------------------------------------------------------
_opens_early = None


def look_early(torch):
    """Before it is known whether this process is a rank."""
    global _opens_early
    if os.environ.get("LOCAL_RANK", "0") == "0" and "OUTRIDER_DIR" in os.environ:
        _opens_early = _opens(0, known_checkpoints.read(os.environ["OUTRIDER_DIR"]).steps)


def observed():
    """Becomes the worker that the environment describes, once; None where it describes none."""
    if _current is not None or "OUTRIDER_WORKER" in os.environ or "OUTRIDER_GENERATION" not in os.environ:
        return None
    try:
        term, number = os.environ["OUTRIDER_GENERATION"].split(".")
        local_rank = int(os.environ.get("LOCAL_RANK") or 0)
        volume = os.environ["OUTRIDER_DIR"]
        worker = Worker(volume, local_rank, (int(term), int(number)), known_checkpoints.read(volume))
        worker.opens = _opens_early
        activate(worker)
        for path in known_checkpoints.early:
            worker.loaded(path)
        return worker
    except Exception:  # a volume that cannot be written, a rank that is no number: unobserved
        return None
