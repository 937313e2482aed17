"""The memory for checkpoints is there before a rank starts, charged to the trainer's own container, or no rank starts.

A page of it that could not be had when it is first written would be a SIGBUS in the training. The kernel answers a
shortage in a container's memory with a kill rather than an error, so what the container has left is looked at first.
"""

from ..abi import arena
from ..process import cgroup

VARIABLE = "OUTRIDER_CHECKPOINT_MEMORY"
UNLIMITED = 1 << 62


def wanted(environ):
    """Bytes; 0 where none are asked for. Raises ValueError."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    if not text.isdigit() or int(text) < 4 * arena.PAGE:
        raise ValueError("%s is %r: it is a number of bytes, %d at the least" % (VARIABLE, text, 4 * arena.PAGE))
    return int(text)


def shortage(volume, environ):
    """Sees to it that the memory is there; why it is not, else ""."""
    try:
        size = wanted(environ)
    except ValueError as error:
        return str(error)
    path = arena.path_of(volume)
    if not size or arena.is_allotted(path, size):
        return ""
    cannot = "the memory for checkpoints (checkpointMemory, %s) cannot be had: " % mebibytes(size)
    limit, left = room()
    if size > left:
        return cannot + "of its %s the container has %s left" % (mebibytes(limit), mebibytes(left))
    try:
        arena.allot(path, size)
    except OSError as error:
        return cannot + "%s: %s" % (path, error.strerror or error)
    return ""


def room():
    """(the limit of this container's memory, what of it is left), in bytes. What can be read from disk again counts as
    left, as the kubelet counts it."""
    limit = _number(cgroup.files("memory", "memory.limit_in_bytes", "memory.max"))
    used = _number(cgroup.files("memory", "memory.usage_in_bytes", "memory.current"))
    if limit is None or used is None or limit > UNLIMITED:
        return UNLIMITED, UNLIMITED
    return limit, max(0, limit - used + _files_pages())


def _files_pages():
    for _, text in cgroup.files("memory", "memory.stat", "memory.stat"):
        rows = dict(line.split()[:2] for line in text.splitlines() if line.count(" ") == 1)
        return int(rows.get("total_inactive_file") or rows.get("inactive_file") or 0)
    return 0


def _number(found):
    """Of the first of these files; None where it has none (`max`)."""
    text = found[0][1].strip() if found else ""
    return int(text) if text.isdigit() else None


def mebibytes(size):
    """For people: whole MiB, or GiB with a digit."""
    return "%.1f GiB" % (size / 2**30) if size >= 2**30 else "%d MiB" % -(-size // 2**20)
