"""CURVE key pairs: that of a master, whose public key its sidecars know, and one for each connection."""

from __future__ import annotations

from dataclasses import dataclass

import zmq


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85, 40 characters each."""

    public: str
    secret: str


def new_key_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def key_pair_of(secret: str) -> KeyPair:
    """The key pair for a secret key; ValueError if it is not a valid key."""
    try:
        return KeyPair(zmq.curve_public(secret.encode("ascii")).decode(), secret)
    except (ValueError, UnicodeEncodeError, zmq.ZMQError) as error:
        raise ValueError("a CURVE key must be 40 characters of Z85") from error
