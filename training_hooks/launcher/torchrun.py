"""Replaces torchrun: its flags and its script are used, and the sidecar supervises instead of torchrun.

There are two ways. If the command line is sufficient, the template is started directly, without importing torch into a
launcher that would only be discarded (`without_torchrun`). Otherwise torchrun runs, and a finder on sys.meta_path
replaces `launch_agent` when torch.distributed.launcher.api is loaded. torchrun, `-m torch.distributed.run`, `launch`
and accelerate's multi-process branches all call it. torch is not imported for this.

There are three results. A Python script or module becomes the template in this process. A bare command (`--no-python`)
is run once per local rank by the launcher. A function (`--run-path`, elastic_launch) cannot leave its process; it runs
as without Outrider, and the reason is reported.
"""

import importlib.abc
import importlib.machinery
import os
import sys

from ..command import context, exec_env, invocation
from ..command.torchrun_args import inner_flags, is_python, torch_arguments

API = "torch.distributed.launcher.api"


def enter(argv):
    """Called in a Python that is about to be torchrun or accelerate. It returns if torchrun must run after all."""
    if torch_arguments(argv) is not None:
        found = inner_flags(argv)
        if found is not None:
            without_torchrun(argv, found, dict(os.environ))
    install()


def interpreter_of(argv, environ):
    """The Python with which torchrun would run the script: PYTHON_EXEC, or its own."""
    if environ.get("PYTHON_EXEC"):
        return environ["PYTHON_EXEC"]
    return argv[0] if is_python(os.path.basename(argv[0])) else ""


def without_torchrun(argv, found, environ):
    """Replaces this process by the template or launcher that torchrun's flags describe. It returns if only torchrun can
    evaluate them: a count that only torch knows, a function, CUDA devices renumbered for each rank."""
    from ..command import plan as command_plan

    if is_python(os.path.basename(argv[0])):
        python = interpreter_of(argv, environ)
    else:
        words = command_plan.shebang(argv[0], environ)
        python = environ.get("PYTHON_EXEC") or (words[0] if words and is_python(os.path.basename(words[0])) else "")
        argv = words + argv[1:] if words else argv
    given = environ.get("OUTRIDER_NPROC", "")
    nproc = int(given) if given.isdigit() else found.nproc()
    if found.run_path or found.virtual_local_rank or nproc is None or (found.no_python and found.module):
        return
    if not python and not found.no_python:
        return
    if found.no_python and found.local_rank_argument:
        return
    _report(found.rendezvous, found.ignored)
    _replace(found.command(python), environ, nproc, found.max_restarts, argv)


def _report(rendezvous, ignored):
    """Reports once, before any output of training; the command that runs the job may have reported it already."""
    if os.environ.get("OUTRIDER_FLAGS_TOLD") == "1":
        return
    for flags, why in (
        (rendezvous, "not needed: Outrider's master forms the generation"),
        (ignored, "not used by Outrider"),
    ):
        if flags:
            context.log("%s %s %s" % (", ".join(flags), "is" if len(flags) == 1 else "are", why))


def _replace(command, environ, nproc, max_restarts, original):
    """Never returns. The pid stays the same, so a process that waits for torchrun waits for the template."""
    what = "torchrun's script %s" % next((each for each in command[1:] if each not in ("-u", "-m")), command[0])
    if is_python(os.path.basename(command[0])) and invocation.parse(command).kind in ("script", "module"):
        marked = exec_env.mark(environ, what, nproc, max_restarts, macros=True, original=original)
        context.execute(command, marked)
    reason = "torchrun runs %s, which is not Python: it is run once per local rank" % command[0]
    context.each_rank(command, reason, nproc, max_restarts, macros=True, original=original, environ=environ)


# -- inside torchrun --------------------------------------------------------------------------------------------------
def install():
    sys.meta_path.insert(0, Finder())


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module through the finders after it, wraps its loader, and removes itself."""

    def find_spec(self, name, path=None, target=None):
        if name != API:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


class Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        original = getattr(module, "launch_agent", None)
        if original is not None:
            module.launch_agent = replaced(original)

    def __getattr__(self, name):
        return getattr(self.loader, name)


def replaced(launch_agent):
    """`launch_agent` for scripts and commands; the real one for functions, and if a template exists already."""

    def launch_agent_of_outrider(config, entrypoint, args, *more, **named):
        from ..command import trainer_detection

        try:
            if isinstance(entrypoint, str) and not trainer_detection.is_claimed(os.environ):
                _take_over(config, entrypoint, [str(each) for each in args])
            elif not isinstance(entrypoint, str):
                context.log("torch's launcher was given a function, which runs without Outrider")
        except Exception as error:  # this torch has an unknown LaunchConfig: torchrun runs as without Outrider
            context.log("torchrun could not be replaced (%s: %s)" % (type(error).__name__, error))
        return launch_agent(config, entrypoint, args, *more, **named)

    return launch_agent_of_outrider


def _take_over(config, entrypoint, args):
    given = os.environ.get("OUTRIDER_NPROC", "")
    nproc = int(given) if given.isdigit() else int(config.nproc_per_node)
    found = inner_flags([sys.executable, *invocation.command_line()[1:]])
    restarts = found.max_restarts if found else int(config.max_restarts) or None
    if found is not None:
        _report(found.rendezvous, found.ignored)
    sys.stdout.flush()
    sys.stderr.flush()
    original = [sys.executable, *invocation.command_line()[1:]]
    _replace([entrypoint, *args], dict(os.environ), nproc, restarts, original)
