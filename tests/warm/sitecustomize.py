"""A Python that stands still in its own start, with torch there, and forks what goes on to be `python train.py`.

It is the trick of the product's template, for the tests: a process that is forked here returns from this module, and
CPython then runs the script `train.py` of its folder as after any start. So nothing is imitated of what follows the
start (`__main__`, sys.path, tracebacks, how it ends), and what is different before it is this: the hooks' wrappers were
there before torch, once, as in a template; torch has one thread; __file__ and /proc/self/cmdline name the script in
another way. At its end neither modules nor torch's libraries are taken apart that it was forked with, which is half
a second of CPU and a copy of nearly every page: what is about that end starts a Python of its own.
"""

import atexit
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import socket
import sys
import weakref

USED = ("numpy", "torch.distributed", "torch.optim", "torch.utils.data.distributed")
IN_RANKS = ("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.nn.parallel")
"""What scripts of tests import besides."""


LIBC = ctypes.CDLL(None)
STAY = ("__main__", "builtins", "sys")


def hooks(package):
    """The hooks as their sitecustomize loads them, without a part to play yet."""
    where = os.path.join(package, "__init__.py")
    spec = importlib.util.spec_from_file_location("_outrider_hooks", where, submodule_search_locations=[package])
    module = sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("entry", "command.exec_env", "template.become", "patches"):
        importlib.import_module("_outrider_hooks." + name)
    return module


def warm_up(package):
    """Once for all that are forked: so `prepare` has nothing left to do in them."""
    found = hooks(package) if package else None
    if found is not None:
        found.patches.prepare()
        found.patches.prepare = lambda: None
    for name in USED + (IN_RANKS + found.template.preimport.BEHIND if found is not None else ()):
        importlib.import_module(name)
    for each in list(weakref.finalize._registry):
        each.atexit = False  # torch's tables of operators, taken apart row by row
    gc.collect()
    gc.freeze()
    return found


def leave_whole(modules):
    """Last at the end of a process: what is referred to once more, and is in sys.modules no more, stays as it is."""
    for name, module in modules.items():
        if sys.modules.get(name) is module:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
            del sys.modules[name]


def serve(control):
    """Forks, and says how it ended, on demand; returns in each process that is forked what it shall be."""
    while True:
        message, files, _, _ = socket.recv_fds(control, 1 << 20, 3)
        if not message:
            os._exit(0)
        wanted = json.loads(message)
        if "reap" in wanted:
            answer = os.waitstatus_to_exitcode(os.waitpid(wanted["reap"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                os.setsid()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                control.close()
            for file in files:
                os.close(file)
            if not answer:
                return wanted
        control.send(json.dumps(answer).encode())


def become(wanted, found):
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv[:] = wanted["command"]
    sys.orig_argv[1:] = sys.argv
    importlib.invalidate_caches()
    marked = sys.modules.get("_outrider_hooks.checkpoints.transparent_save")
    if marked is not None:
        marked.STARTED_IN = os.getcwd()
    if found is not None and wanted["env"].get("OUTRIDER_DIR"):
        found.entry.enter()


def main():
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own]
    control = socket.socket(fileno=int(os.environ.pop("WARM_CONTROL")))
    modules = {}
    atexit.register(leave_whole, modules)  # before all others
    found = warm_up(os.environ.pop("WARM_HOOKS"))
    LIBC.on_exit(LIBC._exit, None)  # with its code, before what torch's libraries do at an exit
    modules.update((name, each) for name, each in sys.modules.items() if name not in STAY)
    become(serve(control), found)


main()
