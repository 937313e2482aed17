"""Parses the flags of a torchrun inside the command, in all its forms, without importing torch.

The parser has torchrun's own options, so that abbreviations, both spellings and `=` mean the same, and defaults come
from PET_* variables. Flags that it cannot parse are left to torchrun itself, which prints its own error.
"""

import argparse
import os

MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.launch")
RENDEZVOUS = (
    "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone", "node_rank", "master_addr", "master_port",
    "local_addr",
)  # fmt: skip
IGNORED = (
    "monitor_interval", "start_method", "event_log_handler", "log_dir", "redirects", "tee", "local_ranks_filter",
    "duplicate_stdout_filters", "duplicate_stderr_filters", "logs_specs", "numa_binding", "signals_to_handle",
    "shutdown_timeout",
)  # fmt: skip
SWITCHES = ("module", "no_python", "run_path", "virtual_local_rank")
SHORT = {"module": "-m", "redirects": "-r", "tee": "-t"}


class Unreadable(Exception):
    """torchrun would reject these flags too, or print its help."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Unreadable(message)


def _parser(legacy):
    parser = Parser(add_help=False)
    names = ["nnodes", "nproc_per_node", "max_restarts", "role", *RENDEZVOUS, *IGNORED, *SWITCHES]
    for name in [*names, "use_env"] if legacy else names:
        spellings = sorted({"--" + name.replace("_", "-"), "--" + name})
        is_switch = name in SWITCHES or name in ("standalone", "use_env")
        kind = {"action": "store_true", "default": None} if is_switch else {}
        parser.add_argument(*([SHORT[name]] if name in SHORT else []), *spellings, dest=name, **kind)
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


class Flags:
    """The flags of the inner launcher. A flag that was not given is None; `rendezvous` and `ignored` name the given
    flags that have no meaning under Outrider. `legacy`: torch.distributed.launch, which passes --local-rank."""

    def __init__(self, found, legacy, environ):
        self.nnodes = self._of(found, "nnodes", environ)
        self.nproc_per_node = self._of(found, "nproc_per_node", environ)
        self.max_restarts = _whole_number(self._of(found, "max_restarts", environ), "--max-restarts")
        self.module = self._is_on(found, "module", environ)
        self.no_python = self._is_on(found, "no_python", environ)
        self.run_path = self._is_on(found, "run_path", environ)
        self.virtual_local_rank = self._is_on(found, "virtual_local_rank", environ)
        self.local_rank_argument = legacy and not found.use_env
        self.script, self.arguments = found.training_script, list(found.training_script_args)
        self.rendezvous = [_flag(name) for name in RENDEZVOUS if getattr(found, name) is not None]
        self.ignored = [_flag(name) for name in IGNORED if getattr(found, name) is not None]

    @staticmethod
    def _of(found, name, environ):
        value = getattr(found, name)
        return environ.get("PET_" + name.upper()) if value is None else value

    @staticmethod
    def _is_on(found, name, environ):
        return bool(getattr(found, name)) or environ.get("PET_" + name.upper(), "0") == "1"

    def nproc(self):
        """The worker processes per member as a number, or None if only torch can count them (auto, gpu)."""
        value = "1" if self.nproc_per_node is None else self.nproc_per_node
        if value == "cpu":
            return len(os.sched_getaffinity(0))
        return int(value) if value.isdigit() and int(value) > 0 else None

    def members(self):
        """(min, max) of --nnodes, or None if it was not given or is not a number."""
        try:
            low, _, high = (self.nnodes or "").partition(":")
            return (int(low), int(high or low)) if low else None
        except ValueError:
            return None

    def command(self, interpreter):
        """The command that torchrun would run for each rank, with `${local_rank}` not yet replaced."""
        if self.no_python:
            command = [self.script]
        else:
            command = [interpreter, "-u"] + (["-m"] if self.module else []) + [self.script]
        macro = ["--local-rank=${local_rank}"] if self.local_rank_argument else []
        return command + macro + self.arguments


def _flag(name):
    return "--" + name.replace("_", "-")


def _whole_number(value, flag):
    try:
        return None if value is None else int(value)
    except ValueError:
        raise Unreadable("%s must be a whole number, not %r" % (flag, value)) from None


def torch_arguments(argv):
    """(arguments of torchrun, whether it is the legacy launch module) if argv is one of its forms, else None."""
    from . import invocation

    name = os.path.basename(argv[0]) if argv else ""
    if is_torchrun(name):
        return argv[1:], False
    if not is_python(name):
        return None
    called = invocation.parse(argv)
    if called.kind == "module" and called.target in MODULES:
        return called.arguments, called.target == MODULES[1]
    if called.kind == "script" and is_torchrun(os.path.basename(called.target)):
        return called.arguments, False
    return None


def is_torchrun(name):
    return name in ("torchrun", "torchrun.py")


def is_python(name):
    """Whether it is python, python3, python3.11 or pypy3, judged by the name alone, as nothing is run."""
    for stem in ("python", "pypy"):
        if name.startswith(stem) and all(letter in "0123456789.tdm" for letter in name[len(stem) :]):
            return True
    return False


def inner_flags(argv, environ=None):
    """The flags, if argv is torchrun, `python -m torch.distributed.run` or `launch`; None if it is not, or if its flags
    cannot be parsed."""
    found = torch_arguments(list(argv))
    if found is None:
        return None
    try:
        return Flags(_parser(found[1]).parse_args(found[0]), found[1], os.environ if environ is None else environ)
    except Unreadable:
        return None
