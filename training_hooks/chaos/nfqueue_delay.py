"""Delays every packet of a netfilter queue for a fixed time, in order.

It is for kernels without `tc netem delay`, which does the same. The packets stay in the kernel, and only their numbers
come here (linux/netfilter/nfnetlink_queue.h). The numbers grow, so one verdict releases all packets that are due.
"""

import collections
import os
import select
import socket
import struct
import time

NETLINK_NETFILTER, NETLINK_NO_ENOBUFS, SOL_NETLINK, NLMSG_ERROR = 12, 5, 270, 2
QUEUE = 3 << 8
PACKET, CONFIG, VERDICTS = QUEUE | 0, QUEUE | 2, QUEUE | 3
REQUEST, ACK = 1, 4
CFG_CMD, CFG_PARAMS, CFG_MAXLEN, CFG_MASK, CFG_FLAGS = 1, 2, 3, 4, 5
BIND, COPY_META, WHOLE_SEGMENTS, ACCEPT = 1, 1, 4, 1
PACKET_HDR, VERDICT_HDR = 1, 2
MOST_HELD = 100000
HEADER, GENERIC, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct(">BBH"), struct.Struct("=HH")


class Queue:
    """A netfilter queue. Raises OSError if this kernel has none, or this user may not use it."""

    def __init__(self, number):
        self.number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.socket.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        self.socket.bind((0, 0))
        self._configure(attribute(CFG_CMD, struct.pack(">BBH", BIND, 0, 0)))
        self._configure(
            attribute(CFG_PARAMS, struct.pack(">IB", 0, COPY_META)),
            attribute(CFG_MAXLEN, struct.pack(">I", MOST_HELD)),
            attribute(CFG_FLAGS, struct.pack(">I", WHOLE_SEGMENTS)),
            attribute(CFG_MASK, struct.pack(">I", WHOLE_SEGMENTS)),
        )

    def _configure(self, *attributes):
        self._send(CONFIG, REQUEST | ACK, *attributes)
        for kind, body in messages(self.socket.recv(65536)):
            error = -struct.unpack_from("=i", body)[0] if kind == NLMSG_ERROR else 0
            if error:
                raise OSError(error, os.strerror(error))

    def _send(self, kind, flags, *attributes):
        body = GENERIC.pack(socket.AF_UNSPEC, 0, self.number) + b"".join(attributes)
        self.socket.send(HEADER.pack(HEADER.size + len(body), kind, flags, 0, 0) + body)

    def arrived(self):
        """The numbers of the arrived packets, in order."""
        found = []
        while select.select([self.socket], [], [], 0)[0]:
            for kind, body in messages(self.socket.recv(65536)):
                if kind == PACKET:
                    found += [
                        struct.unpack_from(">I", value)[0] for name, value in attributes_of(body) if name == PACKET_HDR
                    ]
        return found

    def let_go(self, newest):
        """Releases this packet and all before it."""
        self._send(VERDICTS, REQUEST, attribute(VERDICT_HDR, struct.pack(">II", ACCEPT, newest)))

    def close(self):
        self.socket.close()


def attribute(name, value):
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), name) + value + bytes(-len(value) % 4)


def attributes_of(body):
    at = GENERIC.size
    while at + ATTRIBUTE.size <= len(body):
        size, name = ATTRIBUTE.unpack_from(body, at)
        yield name, body[at + ATTRIBUTE.size : at + size]
        at += max(size + -size % 4, ATTRIBUTE.size)


def messages(data):
    at = 0
    while at + HEADER.size <= len(data):
        size, kind = HEADER.unpack_from(data, at)[:2]
        yield kind, data[at + HEADER.size : at + size]
        at += max(size + -size % 4, HEADER.size)


def hold_back(queue, seconds):
    """Delays packets for ever."""
    held = collections.deque()
    while True:
        pause = max(0.0, held[0][0] - time.monotonic()) if held else None
        select.select([queue.socket], [], [], pause)
        came = queue.arrived()
        now = time.monotonic()  # after the last packet arrived: no packet is released before its time
        held.extend((now + seconds, number) for number in came)
        due = None
        while held and held[0][0] <= now:
            due = held.popleft()[1]
        if due is not None:
            queue.let_go(due)
