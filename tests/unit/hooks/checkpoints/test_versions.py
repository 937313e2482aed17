"""The file that identifies the save at the checkpoint path."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_hooks.checkpoints import torch_buffer, version_file

SAVES = '{"outrider": "checkpoint version", "version": %d, "saves": [%s]}'


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "null",
        "\\xff",
        SAVES % (1, "null, 3, {}"),
        SAVES % (1, '{"of": [], "generation": 1, "number": 1}'),
        SAVES % (1, '{"of": "x", "generation": 1, "number": 1' + 30 * "0" + "}"),
        SAVES % (1, '{"of": "x", "generation": 1, "number": -1}'),
        SAVES % (2, '{"of": "x", "generation": 1, "number": 7}'),
    ],
)
def test_an_unreadable_file_has_no_entries_and_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(b"what was saved")
    Path(version_file.place(str(path))).write_text(text)
    assert version_file.newest(str(path)) == 0
    assert version_file.read(str(path))[1] is None
    version_file.write(str(path), str(path), (1 << 32, 3))
    assert version_file.read(str(path))[1] == (1 << 32, 3)


def test_a_file_of_torchs_without_its_end_is_torn_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    assert not torch_buffer.is_torn(str(path))
    path.write_bytes(b"")
    assert torch_buffer.is_torn(str(path))
    path.write_bytes(b"PK\x03\x04 the beginning of a zip file")
    assert torch_buffer.is_torn(str(path))
    path.write_bytes(b"\x80\x02 a pickle")
    assert not torch_buffer.is_torn(str(path))
