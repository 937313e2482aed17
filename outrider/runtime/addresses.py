"""Addresses of both families: in a cluster whose pods have IPv6 alone, or first, `status.podIP` is one with colons.

A kernel without IPv6 has no such address; what listens on all addresses listens on those of IPv4 there.
"""

from __future__ import annotations

import socket


def family_of(address: str) -> socket.AddressFamily:
    """Of a literal; a name counts as IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def everywhere(address: str) -> str:
    """All addresses of this machine, in the family of this one: what it is reached at is then answered from there."""
    return "::" if family_of(address) is socket.AF_INET6 else "0.0.0.0"


def listening(address: str) -> socket.socket:
    """Takes TCP connections on any free port of this address; of all of its family if it is none of this machine."""
    try:
        return socket.create_server((address, 0), family=family_of(address))
    except OSError:
        return socket.create_server((everywhere(address), 0), family=family_of(address))
