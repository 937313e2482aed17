"""The code of the hooks that runs in a training process after its fork or its start by a launcher.

A child forked from a worker process (a DataLoader worker) is not a worker: its steps and saves are not the rank's.
`patches` has the list of wrapped functions.
"""

import atexit
import os
import threading
import time

from ..abi import arena, progress_page, rank_files
from ..data import lightning_loop, loader_hooks, position
from ..process import exception_report, import_hooks, worker_channel
from ..telemetry import stacks, step_counter, step_window, time_spent
from . import checkpoint_opens, checkpoint_reads, known_checkpoints, save_group

NOT_ATOMIC, ATOMIC = "not atomic", "atomic"
OVERTAKEN, FULL = "overtaken", "no room"
OVER = (
    "%s is overwritten in place, because there is no room beside it for a second file (%s): a kill during such a save "
    "destroys that checkpoint; give the disk room for two files"
)
VERDICT = 10.0
"""Seconds within which the master decides whether a script has started over."""
WHOLE_AGAIN = "checkpoints are replaced atomically again: there is room for the new file beside the old one"
_current = None
_when_saved = _when_active = None


def when_saved(call):
    """Registers `call(path)` for each checkpoint of this rank from now on."""
    global _when_saved
    _when_saved = call


def when_active(call):
    """Registers `call(worker)` for the moment at which this process becomes a worker."""
    global _when_active
    _when_active = call


def current():
    """The worker of this process, or None if it is not one."""
    return _current if _current is not None and _current.pid == os.getpid() else None


def _nothing():
    """Default for callbacks until steps are counted."""


class Worker:
    def __init__(self, volume, local_rank, generation, known_before=None):
        self.volume, self.local_rank, self.generation, self.pid = volume, local_rank, list(generation), os.getpid()
        os.makedirs(rank_files.page_folder(volume), exist_ok=True)
        self.page = progress_page.Page(rank_files.page_path(volume, local_rank), *generation)
        self.spent = time_spent.TimeSpent(self.page.words)
        self.channel = worker_channel.Channel(volume)
        self.listening = False
        self.series = known_checkpoints.Series()
        self.known = known_before or known_checkpoints.Known()
        self._awaits_verdict = os.environ.get("OUTRIDER_REQUIRE_RESUME") == "1"
        self._newest_before = max(self.known.steps.values(), default=0)
        self.opens = None
        """Watch that reports, until the first step, whether a process opens a known checkpoint
        (`checkpoint_opens.Opens`)."""
        self.reads = None
        """Watch that reports, until the first step, whether a file is read that may be a checkpoint
        (`rank.checkpoint_reads.Reads`)."""
        self.in_place = set()
        """Paths whose last save overwrote the old file in place, because there was no room for a second file."""
        self._saving, self._save_began, self._save_ended, self._after = 0, 0, 0, progress_page.INIT
        self._before_save = None
        self.together = save_group.Together(lambda message: self.channel.send("up", message), self._saves_over)
        self.phase_changed = self.restart_counting = _nothing
        self.sampler = step_window.Sampler(self)
        self._is_beginning = True
        self.data = None
        """Record of the samples that this rank consumes (`data.position.Book`); set at the activation."""
        self.mover = None

    # -- phases -------------------------------------------------------------------------------------------------------
    def phase(self):
        return self.page.words[progress_page.PHASE] & 0xFFFFFFFF

    def phase_name(self):
        is_saved = self.together.waits and not self._saving
        return progress_page.PHASES[min(self._after if is_saved else self.phase(), 3)]

    def stepped(self, step):
        """Called after a step if the page may not show the step phase yet, or a window is measured. Returns True if the
        next steps need no such call. A step during an asynchronous save leaves the page's phase to the save."""
        self.spent.stepped()
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
        """Runs at the first step of this process."""
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
            self.spent.enter(progress_page.EVALUATION)

    def begin_save(self):
        """Marks the begin of a save; returns its time in seconds, the `began` argument of `saved`."""
        self.sampler.spoil()
        self._saving += 1
        now = time.monotonic_ns()
        if self._saving == 1:
            self._before_save = self.spent.enter(progress_page.SAVING)
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
        self.spent.leave(self._before_save)
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
        """Reports a finished save. `began`: when its content was taken (monotonic seconds). `is_first`: the first save
        to a path that nothing else identifies as a checkpoint."""
        step = self.page.words[progress_page.STEPS] if step is None else step
        print_ = known_checkpoints.fingerprint(path)
        prints = [print_] if print_ else []
        self.known.saved(path, step, prints)
        if _when_saved is not None:
            _when_saved(path)
        self._report_saved(
            {
                "first" if is_first else "saved": os.path.abspath(path),
                "step": step,
                "began": began,
                "prints": prints,
                "local_rank": self.local_rank,
                "generation": self.generation,
            }
        )

    def _report_saved(self, message):
        self.known.note(message.get("saved", message.get("first")), message)
        if (self.together.waits or self._saving) and _in_main_thread():
            self.together.hold(message)
        else:
            self.channel.send("up", message)

    def renamed(self, old, new, existed):
        """Follows a rename by the script. A file that replaces an older file or continues a series is a checkpoint,
        even if its temporary name did not show it."""
        for message, path in self.known.renamed(old, new):
            renamed = {key: value for key, value in message.items() if key not in ("first", "saved")}
            is_first = "first" in message and not self.series.continues(path, existed)
            renamed["first" if is_first else "saved"] = path
            self.together.let_go(message)
            self._report_saved(renamed)

    def report_data(self, word, sentence, warning, detail):
        """Reports a message about the data position, the batches (`data.position.Book`) or a saved state."""
        about = {
            "rank": int(os.environ.get("RANK", self.local_rank)),
            "local_rank": self.local_rank,
            "generation": self.generation,
        }
        self.channel.send("up", dict(about, data=word, sentence=sentence, warning=warning, detail=detail))

    def report_room(self, target, lack):
        """Reports a change between atomic saves and saves in place. `lack`: the error that prevents an atomic save, or
        None if this save was atomic."""
        path = os.path.abspath(target)
        if lack is not None and path not in self.in_place:
            self.in_place.add(path)
            self.report_data(NOT_ATOMIC, OVER % (path, os.strerror(lack.errno)), True, {})
        elif lack is None and path in self.in_place:
            self.in_place.remove(path)
            if not self.in_place:
                self.report_data(ATOMIC, WHOLE_AGAIN, False, {})

    def report_full(self, target, error):
        """Reports a save that failed on a full disk: the script may catch the error and end with an exit code alone."""
        path = os.path.abspath(target)
        try:
            disk = os.statvfs(os.path.dirname(path))
            free = "%d of its %d MiB are free" % (
                disk.f_bavail * disk.f_frsize >> 20,
                disk.f_blocks * disk.f_frsize >> 20,
            )
        except OSError:
            free = "its free space is unknown"
        sentence = "%s was not saved at step %d: %s (%s)" % (path, self.steps_made(), os.strerror(error.errno), free)
        self.report_data(FULL, sentence, True, {})

    def report_overtaken(self, error):
        self.report_data(OVERTAKEN, str(error), True, {})

    def generation_number(self):
        return self.generation[0] << 32 | self.generation[1]

    def loaded(self, path):
        """Resumes the step count from a checkpoint of this job that is loaded before the first step. If several are
        loaded (the best one and the last one), the highest step counts."""
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
        """Delays the first save of a job that must end if its script starts over. Within one or two seconds after the
        first step the master ends this process, or another rank has loaded the checkpoint to resume from."""
        if self._awaits_verdict and self.may_replace_newer:
            self._awaits_verdict = False
            time.sleep(VERDICT)

    @property
    def may_replace_newer(self):
        """Whether this process began at step 0 although checkpoints exist, and has not passed their steps yet."""
        words = self.page.words
        return words[progress_page.BASE] == 0 and words[progress_page.STEPS] < self._newest_before

    def steps_made(self):
        return self.page.words[progress_page.STEPS]

    def remembered(self, head, counted=0):
        """Reports a copy in memory that is complete now. `head`: an `arena.Head`."""
        about = {"remembered": head.step, "length": head.length, "rank": head.rank, "world": head.world}
        about.update(sharded=head.kind == arena.SHARDED, local_rank=self.local_rank, generation=self.generation)
        if head.kind == arena.MARKED:
            about.update(marked=True, counted=counted)
        self.channel.send("up", about)


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


def activate(worker):
    """Makes this process the given worker."""
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
    """One watch per member, since each takes one of the 128 inotify instances of a user."""
    return checkpoint_opens.Opens(steps) if local_rank == 0 and steps else None


def _keep_book(worker):
    def book():
        return worker.data if current() is worker else None

    try:
        worker.data = position.Book(step_counter.counter(worker.page), worker.report_data, os.environ, worker.volume)
    except ValueError:  # the environment describes no rank, so there is no position to record
        return
    import_hooks.when_imported("torch.utils.data.distributed", lambda module: loader_hooks.wrap_samplers(book, module))
    import_hooks.when_imported("torch.utils.data.dataloader", lambda module: loader_hooks.wrap_loaders(book, module))
    lightning_loop.prepare(book, import_hooks.when_imported)


# -- under a launcher -------------------------------------------------------------------------------------------------
_opens_early = None


def look_early(torch):
    """Starts the watch for opened checkpoints before this process is known to be a rank."""
    global _opens_early
    if os.environ.get("LOCAL_RANK", "0") == "0" and "OUTRIDER_DIR" in os.environ:
        _opens_early = _opens(0, known_checkpoints.read(os.environ["OUTRIDER_DIR"]).steps)


def observed():
    """Becomes the worker that the environment describes, at the first call; None if it describes none."""
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
    except Exception:  # the volume is not writable, or the rank is not a number: the process stays unobserved
        return None
