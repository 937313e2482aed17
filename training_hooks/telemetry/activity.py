"""The resources that a process and its descendants have used; two readings show whether a rank without steps works.

An unprivileged process can read all of this for processes of its own user: /proc, and the kernel's socket diagnosis of
its network namespace (sock_diag(7); `tcp_info` in linux/tcp.h). A value that cannot be read counts as unused.
"""

import os
import socket
import struct
import time
import zlib

SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, DONE, ERROR = 20, 0x301, 3, 2
ESTABLISHED, INFO = 1, 2
BYTES_ACKED, BYTES_RECEIVED = 120, 128
"""Offsets of two u64 in `tcp_info`."""
DIAG_SECONDS = 0.3
TICKS = os.sysconf("SC_CLK_TCK")
OWN = "outrider"
"""Name of the hooks' thread that answers questions."""
WAITING_THREADS = (OWN, "gloo", "pt_gloo", "pt_nccl", "pt_tcpstore", "nccl")
"""Names of the threads of process groups: gloo's poll every 10 ms, which takes 0.2 % of a core per group."""


def used(pids, stores):
    """{pid: {"cpu": seconds, "io": a number, "net": bytes, "tree": a number}}, each of `pids` with its descendants.

    `io` counts bytes read and written, page faults from the disk, and those of children that have ended. `tree` changes
    if other processes descend from the pid. `stores`: by pid the port of its TCPStore, whose connections do not count,
    because watchdogs poll it whatever the rank does."""
    children, found = {}, {}
    for pid, stat in _all_stats().items():
        children.setdefault(int(stat[1]), []).append((pid, stat))
        if pid in pids:
            found[pid] = [(pid, stat)]
    for tree in found.values():
        for each, _ in tree:  # the list grows while it is read
            tree.extend(children.get(each, ()))
    moved = _bytes_by_inode() if found else {}
    return {pid: _of_tree(tree, moved, stores.get(pid)) for pid, tree in found.items()}


def _of_tree(tree, moved, store):
    ticks = io = 0
    for pid, stat in tree:
        ticks_of, io_of = _of_threads(pid)
        ticks += ticks_of + int(stat[13]) + int(stat[14])  # with the children that it has reaped
        io += (
            io_of + int(stat[8]) + int(stat[9])
        )  # stat[8] grows with each child that is reaped, however short it lived
    sockets = {inode for pid, _ in tree for inode in _sockets(pid)}
    net = sum(moved[inode][0] for inode in sockets & moved.keys() if store not in moved[inode][1])
    names = " ".join(str(pid) for pid, _ in sorted(tree))
    return {"cpu": round(ticks / TICKS, 2), "io": io, "net": net, "tree": zlib.crc32(names.encode())}


def _of_threads(pid):
    """CPU time, and bytes of read and write calls, of the living threads, except threads of libraries that poll while
    all ranks wait."""
    ticks, io, folder = 0, 0, "/proc/%d/task" % pid
    try:
        threads = os.listdir(folder)
    except OSError:
        return ticks, io
    for thread in threads:
        name, _, rest = _read("%s/%s/stat" % (folder, thread)).partition("(")[2].rpartition(")")
        words = rest.split()
        if len(words) > 12 and not name.startswith(WAITING_THREADS):
            ticks += int(words[11]) + int(words[12])
            lines = dict(line.split(": ") for line in _read("%s/%s/io" % (folder, thread)).splitlines())
            io += int(lines.get("rchar", 0)) + int(lines.get("wchar", 0))
    return ticks, io


def _all_stats():
    """{pid: the words of /proc/PID/stat after the name}, the state first."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            words = _read("/proc/%s/stat" % name).rpartition(")")[2].split()
            if len(words) > 14:
                found[int(name)] = words
    return found


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _sockets(pid):
    """The inodes of a process's sockets."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def _bytes_by_inode():
    """{inode: (bytes sent and received, (local port, remote port))} of the established TCP connections."""
    found = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:  # NETLINK_SOCK_DIAG
            diag.settimeout(DIAG_SECONDS)
            for family in (socket.AF_INET, socket.AF_INET6):
                _dump(diag, family, found)
    except OSError:  # socket diagnosis is not available: sockets count as unused
        pass
    return found


def _dump(diag, family, found):
    about = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << INFO - 1, 1 << ESTABLISHED)
    diag.send(struct.pack("=IHHII", 16 + len(about), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + about)
    until = time.monotonic() + DIAG_SECONDS
    while time.monotonic() < until:
        data, at = diag.recv(1 << 17), 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind in (DONE, ERROR) or length < 16:
                return
            _note(data[at + 16 : at + length], found)
            at += length + 3 & ~3


def _note(message, found):
    """Records an `inet_diag_msg` (72 bytes) and its attributes."""
    if len(message) < 72:
        return
    ports, (inode,) = struct.unpack_from("!HH", message, 4), struct.unpack_from("=I", message, 68)
    at = 72
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            return
        if kind == INFO and length >= 4 + BYTES_RECEIVED + 8:
            sent, received = struct.unpack_from("=QQ", message, at + 4 + BYTES_ACKED)
            found[inode] = (sent + received, ports)
        at += length + 3 & ~3
