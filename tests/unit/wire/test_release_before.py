"""What the release before wrote is read as it was meant, and what is written now has all that its reader needs.

`release_before.msgpack` holds one message of each kind with every field, as the codec of that release wrote it
(667670a).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from outrider.wire.codec import decode_from_master, decode_from_sidecar, encode

RECORDED: list[tuple[str, bytes]] = msgpack.unpackb(Path(__file__).with_name("release_before.msgpack").read_bytes())


def _as_older_readers_see_it(new: Any, old: Any) -> Any:
    """Without what has been added since: they ignore it."""
    if isinstance(old, dict):
        return {name: _as_older_readers_see_it(new[name], old[name]) for name in old if name in new}
    if isinstance(old, list) and isinstance(new, list):
        return [_as_older_readers_see_it(*pair) for pair in zip(new, old, strict=False)]
    return new


@pytest.mark.parametrize(("whence", "written"), RECORDED, ids=[msgpack.unpackb(b)["message"] for _, b in RECORDED])
def test_each_field_of_the_release_before_is_read_and_written_as_it_was(whence: str, written: bytes) -> None:
    read = decode_from_sidecar(written) if whence == "sidecar" else decode_from_master(written)
    was, now = msgpack.unpackb(written), msgpack.unpackb(encode(read))
    assert _as_older_readers_see_it(now, was) == was
