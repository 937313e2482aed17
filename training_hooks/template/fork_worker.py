"""From fork to script: what makes the child of a template a worker process of its generation.

The child must be what a fresh process would be: signals as the template found them, the environment it was started with
plus the generation's, nothing of the template's open, its own session (as torchrun gives each rank), and random where a
fresh process is random: numpy's global state and torch's default generator are reseeded, Python's own is by itself.
"""

import importlib
import os
import signal
import sys

from .. import patches
from ..process import tree
from ..rank import worker
from . import proctitle


class Rank:
    """One worker process, as its template sees it."""

    def __init__(self, pid, local_rank, rank):
        self.pid, self.local_rank, self.rank = pid, local_rank, rank


def saved_signals():
    """What the process was started with: dispositions by number."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE)
    return {number: signal.getsignal(number) for number in numbers}


def restore_signals(dispositions):
    signal.set_wakeup_fd(-1)
    for number, handler in dispositions.items():
        if handler is not None:
            signal.signal(number, handler)


def set_environment(wanted):
    """Makes os.environ exactly that, through putenv, with as few calls as it takes."""
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def reseed():
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def keep_thread_count(loaded_with):
    """libgomp read OMP_NUM_THREADS when torch was imported in the template; where the generation says another number,
    it is set as if it had been read now."""
    wanted, torch = os.environ.get("OMP_NUM_THREADS"), sys.modules.get("torch")
    if torch is not None and wanted and wanted != loaded_with and wanted.isdigit():
        torch.set_num_threads(int(wanted))


def forget_hidden(folder, kept):
    """A module of the standard library that only the hooks have imported, and that the script's folder hides with one
    of its own, is imported again by the script, which then gets its own."""
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return
    own = {entry.partition(".")[0] for entry in entries}
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in own and name not in kept:
            del sys.modules[name]


def watch(volume, spec, generation, known_before):
    """The worker side of the hooks; a volume that cannot be written leaves the rank unobserved."""
    try:
        watched = worker.Worker(volume, spec["local_rank"], generation, known_before)
        worker.activate(watched)
        patches.count_steps(watched)
    except Exception:  # never in the way of the training
        os.environ.setdefault("OUTRIDER_WORKER", str(os.getpid()))


def name_process(environment, local_rank):
    proctitle.set_short("rank %s" % environment.get("RANK", local_rank))


def begin(parent):
    """First in the child."""
    tree.die_with_parent(parent)
    try:
        os.setsid()
    except OSError:
        pass


def settle():
    """Last in the child: what a fresh interpreter would not have cached."""
    reseed()
    importlib.invalidate_caches()
