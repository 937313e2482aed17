"""Handles IPv4 and IPv6 addresses: if pods have only IPv6, or prefer it, `status.podIP` has colons.

A kernel without IPv6 has no such address; a socket on all addresses then listens on IPv4.
"""

from __future__ import annotations

import socket


def family_of(address: str) -> socket.AddressFamily:
    """The family of a literal address; a name counts as IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def everywhere(address: str) -> str:
    """The wildcard address in the family of this address, so that answers leave from the address that was reached."""
    return "::" if family_of(address) is socket.AF_INET6 else "0.0.0.0"


def listening(address: str) -> socket.socket:
    """A TCP socket that listens on any free port of this address, or of all addresses if this machine lacks it."""
    try:
        return socket.create_server((address, 0), family=family_of(address))
    except OSError:
        return socket.create_server((everywhere(address), 0), family=family_of(address))
