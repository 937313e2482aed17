"""What a process and its descendants have used so far. Two looks tell whether a rank works that makes no step.

An unprivileged process reads all of this of processes of its own user: /proc, and the kernel's socket diagnosis of its
own network namespace (sock_diag(7); `tcp_info` in linux/tcp.h). What cannot be read counts as nothing used.
"""

import os
import socket
import struct
import time
import zlib

SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, DONE, ERROR = 20, 0x301, 3, 2
ESTABLISHED, INFO = 1, 2
BYTES_ACKED, BYTES_RECEIVED = 120, 128
"""Offsets in `tcp_info`, two u64."""
DIAG_SECONDS = 0.3
TICKS = os.sysconf("SC_CLK_TCK")
OWN = "outrider"
"""The name of the hooks' thread that answers."""
WAITING_THREADS = (OWN, "gloo", "pt_gloo", "pt_nccl", "pt_tcpstore", "nccl")
"""And those of process groups: gloo's polls every 10 ms, 0.2 % of a processor for each group."""


def used(pids, stores):
    """{pid: {"cpu": seconds, "io": a number, "net": bytes, "tree": a number}} of each of `pids` with all that descends
    from it. `io`: bytes read and written, page faults from the disk, and those of children that have ended. `tree` is
    another one where other processes descend from it. `stores`: by pid the port of its TCPStore, whose connections do
    not count: watchdogs poll it, whatever the rank does."""
    children, found = {}, {}
    for pid, stat in _all_stats().items():
        children.setdefault(int(stat[1]), []).append((pid, stat))
        if pid in pids:
            found[pid] = [(pid, stat)]
    for tree in found.values():
        for each, _ in tree:  # grows
            tree.extend(children.get(each, ()))
    moved = _bytes_by_inode() if found else {}
    return {pid: _of_tree(tree, moved, stores.get(pid)) for pid, tree in found.items()}


def _of_tree(tree, moved, store):
    ticks = io = 0
    for pid, stat in tree:
        ticks_of, io_of = _of_threads(pid)
        ticks += ticks_of + int(stat[13]) + int(stat[14])  # with children that it reaped
        io += (
            io_of + int(stat[8]) + int(stat[9])
        )  # stat[8] grows with each child that is reaped, however short it lived
    sockets = {inode for pid, _ in tree for inode in _sockets(pid)}
    net = sum(moved[inode][0] for inode in sockets & moved.keys() if store not in moved[inode][1])
    names = " ".join(str(pid) for pid, _ in sorted(tree))
    return {"cpu": round(ticks / TICKS, 2), "io": io, "net": net, "tree": zlib.crc32(names.encode())}


def _of_threads(pid):
    """Processor time, and bytes of read and write calls, of its threads that live, but for those of libraries that look
    around while everybody waits."""
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
    """{pid: the words of /proc/PID/stat behind the name}, state first."""
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
    """Inodes of its sockets."""
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
    """{inode: (bytes sent and received, (local port, other port))} of the established TCP connections."""
    found = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:  # NETLINK_SOCK_DIAG
            diag.settimeout(DIAG_SECONDS)
            for family in (socket.AF_INET, socket.AF_INET6):
                _dump(diag, family, found)
    except OSError:  # there is none here: then nothing is known of sockets
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
    """An `inet_diag_msg` (72 bytes) and its attributes."""
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
