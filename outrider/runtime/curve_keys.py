"""CURVE key pairs: a master's, which its sidecars know, and those of their connections."""

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
    """The pair of a secret key; ValueError where it is none."""
    try:
        return KeyPair(zmq.curve_public(secret.encode("ascii")).decode(), secret)
    except (ValueError, UnicodeEncodeError, zmq.ZMQError) as error:
        raise ValueError("a CURVE key must be 40 characters of Z85") from error
