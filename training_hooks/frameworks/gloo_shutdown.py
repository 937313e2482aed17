"""Waits for gloo's threads before a process group ends. Else a finished training may hang or abort at its end.

torch 2.13: a thread of gloo lets go of a work item a moment after everybody has its result, and needs the GIL for that,
since the item holds Python objects (its tensors, the context of the backward pass; a barrier keeps the item before it).
DDP that is freed after `destroy_process_group` frees the group with the GIL held and joins that thread: neither ends.
(So it is where torch._dynamo is imported before the group is made, as in our template; else a default argument in
torch.distributed.nn keeps the group to the interpreter's end.)
Where the group is never destroyed, a thread that asks for the GIL while the interpreter ends aborts the process. So
before both this process sleeps, the GIL given away, until those threads rest.
"""

import atexit
import os
import sys
import time

THREAD = "pt_gloo_runloop"
PATIENCE = 1.0
"""Seconds; then torch does what it does without us."""
TASKS = "/proc/self/task"


def wrap(current, module, pause=None, at_exit=atexit.register):
    """`module`: torch.distributed.distributed_c10d. Only a process that is a worker (`current()`) waits."""
    import functools

    destroy = module.destroy_process_group

    def wait():
        try:
            if current() is not None:
                (pause or settle)()
        except Exception:  # no /proc, or an odd one: the group ends as it would without us
            pass

    @functools.wraps(destroy)
    def destroy_process_group(*args, **kwargs):
        wait()
        return destroy(*args, **kwargs)

    module.destroy_process_group = destroy_process_group
    at_exit(wait)


def settle(look=None, patience=PATIENCE):
    """Returns once each of gloo's threads has slept from one look to the next; whether they did. Who waits for the GIL
    wakes up in every switch interval, so a thread that has not run for two has nothing more to let go of."""
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
    """By thread of gloo: its state, and how often it gave up a core or lost it."""
    found = {}
    for task in os.listdir(TASKS):
        try:
            with open("%s/%s/status" % (TASKS, task)) as file:
                rows = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        except OSError:  # it has ended
            continue
        if rows.get("Name") == THREAD:
            switches = (rows.get("voluntary_ctxt_switches"), rows.get("nonvoluntary_ctxt_switches"))
            found[task] = (rows.get("State", ""), switches)
    return found
