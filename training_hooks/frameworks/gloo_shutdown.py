"""Waits for gloo's threads before a process group ends, since a finished training may otherwise hang or abort.

torch 2.13: a thread of gloo releases a work item a moment after all ranks have its result. It needs the GIL for that,
since the item has Python objects (its tensors, the context of the backward pass; a barrier keeps the item before it).
If DDP is freed after `destroy_process_group`, it frees the group with the GIL held and joins that thread: a deadlock.
(That requires that torch._dynamo was imported before the group was created, as in our template; otherwise a default
argument in torch.distributed.nn keeps the group until the interpreter's end.) If the group is never destroyed, a thread
that requests the GIL while the interpreter ends aborts the process. So before both, this process sleeps without the GIL
until those threads are idle.
"""

import atexit
import os
import sys
import time

THREAD = "pt_gloo_runloop"
PATIENCE = 1.0
"""Seconds to wait; after that torch behaves as without Outrider."""
TASKS = "/proc/self/task"


def wrap(current, module, pause=None, at_exit=atexit.register):
    """`module`: torch.distributed.distributed_c10d. Only a worker process (`current()`) waits."""
    import functools

    destroy = module.destroy_process_group

    def wait():
        try:
            if current() is not None:
                (pause or settle)()
        except Exception:  # /proc is missing or unusual: the group ends as without Outrider
            pass

    @functools.wraps(destroy)
    def destroy_process_group(*args, **kwargs):
        wait()
        return destroy(*args, **kwargs)

    module.destroy_process_group = destroy_process_group
    at_exit(wait)


def settle(look=None, patience=PATIENCE):
    """Returns once each of gloo's threads has slept from one look to the next; the result says whether all did. A
    thread that waits for the GIL wakes up in every switch interval, so one that has not run for two intervals is
    idle."""
    look = look or _look
    pause = min(max(2 * sys.getswitchinterval(), 0.01), 0.05)
    until, before = time.monotonic() + patience, look()
    while before:
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        now = look()
        if now == before and all(state.startswith("S") for state, _ in now.values()):
            return True
        before = now
    return True


def _look():
    """For each thread of gloo: its state, and how often it gave up or lost a core."""
    found = {}
    for task in os.listdir(TASKS):
        try:
            with open("%s/%s/status" % (TASKS, task)) as file:
                rows = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        except OSError:  # the thread has ended
            continue
        if rows.get("Name") == THREAD:
            switches = (rows.get("voluntary_ctxt_switches"), rows.get("nonvoluntary_ctxt_switches"))
            found[task] = (rows.get("State", ""), switches)
    return found
