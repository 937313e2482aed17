"""One run of the command: the environment of its processes, and how each of them is started.

A command runs once per local rank with all variables that torchrun sets, or once per member. In the second case it, or
a launcher inside it, creates the ranks, and it gets its position among the members in the variables that such launchers
read (NODE_RANK, NNODES).
"""

import os
import signal

from ..process import tree
from . import context, exec_env

PER_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_ERROR_FILE")
"""Variables that a command which runs once per member must find out, or set, by itself."""
CAUGHT = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)


def ranks_of(order):
    """{local rank: global rank} of a start order."""
    return {each["local_rank"]: int((each.get("env") or {}).get("RANK", each["local_rank"])) for each in order["ranks"]}


def environments(order, each_rank, own):
    """(local rank, variables) of each process to be started. `own` is the container's environment, which has precedence
    over the order's defaults."""
    common = {name: value for name, value in (order.get("defaults") or {}).items() if name not in own}
    common.update(order.get("env") or {}, OUTRIDER_GENERATION="%d.%d" % tuple(order["generation"]))
    ranks = [(rank["local_rank"], dict(common, **(rank.get("env") or {}))) for rank in order["ranks"]]
    if each_rank:
        return ranks
    _, first = ranks[0]
    whole = first if len(ranks) == 1 else {name: first[name] for name in first if name not in PER_RANK}
    whole.setdefault("NODE_RANK", first.get("GROUP_RANK", "0"))
    whole.setdefault("NNODES", first.get("GROUP_WORLD_SIZE", "1"))
    whole.setdefault("NPROC_PER_NODE", str(len(ranks)))
    return [(0, whole)]


def spawn(argv, environ, streams=None, macro=None, session=True, why_not=""):
    """Starts a process that becomes the command, or ends with a shell's exit code if it cannot; returns its pid.
    `streams` are its stdout and stderr, `macro` is the local rank for its arguments, `why_not` is the file for the
    reason of a failure. It dies with this process."""
    argv = argv if macro is None else exec_env.fill_in(argv, macro)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(argv, environ, streams, parent, session, why_not)
    for stream in streams or ():
        os.close(stream)
    return pid


def leave_stdin(environ):
    """Called in the child: only the rank that OUTRIDER_STDIN names, if set, keeps the standard input."""
    if environ.get("OUTRIDER_STDIN", environ.get("RANK")) != environ.get("RANK"):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)


def _become(argv, environ, streams, parent, session, why_not):
    """Called in the child; never returns."""
    try:
        tree.die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        for number in CAUGHT:
            signal.signal(number, signal.SIG_DFL)
        for target, stream in enumerate(streams or (), 1):
            os.dup2(stream, target)
        if "RANK" in environ:
            leave_stdin(environ)
        if session:
            os.setsid()
        context.execute(argv, environ, why_not)
    finally:
        os._exit(126)
