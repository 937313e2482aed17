"""Reserves the checkpoint memory before a rank starts, charged to the trainer's container; without it no rank starts.

If a page could not be allocated at its first write, training would get a SIGBUS. If a container's memory is short, the
kernel kills a process instead of returning an error, so the free memory of the container is checked first.
"""

from ..abi import arena
from ..process import cgroup

VARIABLE = "OUTRIDER_CHECKPOINT_MEMORY"
UNLIMITED = 1 << 62


def requested(environ):
    """The requested bytes, or 0 for none. Raises ValueError."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    if not text.isdigit() or int(text) < 4 * arena.PAGE:
        raise ValueError("%s: Invalid value: %r: must be %d or more bytes" % (VARIABLE, text, 4 * arena.PAGE))
    return int(text)


def shortage(volume, environ):
    """Reserves the memory; returns "", or the reason why it cannot be reserved."""
    try:
        size = requested(environ)
    except ValueError as error:
        return str(error)
    path = arena.path_of(volume)
    if not size or arena.is_allotted(path, size):
        return ""
    cannot = "the checkpoint memory (checkpointMemory, %s) cannot be reserved: " % mebibytes(size)
    limit, left = room()
    if size > left:
        return cannot + "%s of the container's %s are free" % (mebibytes(left), mebibytes(limit))
    try:
        arena.allot(path, size)
    except OSError as error:
        return cannot + "%s: %s" % (path, error.strerror or error)
    return ""


def room():
    """(limit, free part) of this container's memory, in bytes. Pages that can be read from disk again count as free, as
    for the kubelet."""
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
    """The number in the first of these files, or None if it has none (`max`)."""
    text = found[0][1].strip() if found else ""
    return int(text) if text.isdigit() else None


def mebibytes(size):
    """A size for people: whole MiB, or GiB with one decimal."""
    return "%.1f GiB" % (size / 2**30) if size >= 2**30 else "%d MiB" % -(-size // 2**20)
