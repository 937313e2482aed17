"""Finds a TCP port for a rendezvous: free now, and outside the kernel's ephemeral range.

A port inside that range could be taken by any outgoing connection before it is bound. Each call draws a random port, so
that two members of one machine rarely draw the same. If they do, the generation fails with "address in use" and the
next one draws again.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, HIGHEST = 10_000, 65_535
TRIES = 200


class NoFreePort(Exception):
    """No port was free within the allowed number of tries."""


def find_port(ephemeral: tuple[int, int] | None = None) -> int:
    low, high = ephemeral or _ephemeral_range()
    outside = [*range(LOWEST, min(low, HIGHEST + 1)), *range(max(high + 1, LOWEST), HIGHEST + 1)]
    candidates = outside or list(range(LOWEST, HIGHEST + 1))
    drawn: list[int] = random.sample(candidates, min(TRIES, len(candidates)))
    for port in drawn:
        if _is_free(port):
            return port
    raise NoFreePort(f"none of {TRIES} ports outside {low}-{high} is free")


def _ephemeral_range() -> tuple[int, int]:
    try:
        low, high = EPHEMERAL.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32_768, 60_999  # the kernel's default


def _is_free(port: int) -> bool:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in (97, 99):  # no IPv6 here
                continue
            return False
    return True
