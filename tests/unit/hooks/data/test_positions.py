"""The position file is used only if it is unchanged, and only for its own checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_hooks.data import position_file

POSITION = {"length": 203, "seed": 0, "shuffle": True, "drop_last": False, "nth": 0, "epoch": 1, "consumed": 72,
            "world": 4, "batch": 8}  # fmt: skip


def saved(folder: Path, name: str = "model.pt", content: bytes = b"weights", **changes: Any) -> tuple[Path, Path]:
    """A checkpoint and the file of its position, written as a save does: the position first."""
    checkpoint, beside = folder / name, folder / "new"
    beside.write_bytes(content)
    file = Path(position_file.place(str(checkpoint)))
    position_file.write(str(file), position_file.fingerprint(str(beside)), [POSITION | changes])
    beside.rename(checkpoint)
    return checkpoint, file


def test_a_position_is_beside_its_checkpoint_and_begins_with_a_dot(tmp_path: Path) -> None:
    checkpoint, file = saved(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".model.pt.position.json", "model.pt"]
    assert position_file.read(str(checkpoint)) == ([POSITION], str(file))


def test_a_checkpoint_without_one_has_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    assert position_file.read(str(tmp_path / "model.pt")) == ([], "")


def test_a_save_that_was_killed_before_its_rename_leaves_the_older_position_good(tmp_path: Path) -> None:
    checkpoint, file = saved(tmp_path)
    position_file.write(str(file), "of the checkpoint that never came", [POSITION | {"consumed": 144}])
    assert position_file.read(str(checkpoint))[0] == [POSITION]


def test_only_two_saves_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        checkpoint, file = saved(tmp_path, content=b"%d" % number, consumed=number)
    assert len(json.loads(file.read_text())["body"]["saves"]) == 2
    assert position_file.read(str(checkpoint))[0][0]["consumed"] == 4


def test_a_script_that_renames_or_copies_its_checkpoint_keeps_its_position(tmp_path: Path) -> None:
    checkpoint, file = saved(tmp_path, "model.tmp")
    checkpoint.rename(tmp_path / "model.pt")
    shutil.copyfile(tmp_path / "model.pt", tmp_path / "best.pt")
    for name in ("model.pt", "best.pt"):
        assert position_file.read(str(tmp_path / name)) == ([POSITION], str(file))


def test_a_checkpoint_overwritten_by_another_program_has_no_position(tmp_path: Path) -> None:
    checkpoint, _ = saved(tmp_path)
    checkpoint.write_bytes(b"others' weights")
    with pytest.raises(position_file.Unusable, match="belongs to another save than"):
        position_file.read(str(checkpoint))


def with_body(file: Path, change: Any) -> None:
    """The checksum is recomputed, so only the content is wrong."""
    document = json.loads(file.read_text())
    change(document["body"])
    document["checksum"] = position_file._sum(json.dumps(document["body"], sort_keys=True))
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not a complete JSON document"),
        (b"\x00\xff\xfe", "not a complete JSON document"),
        (b"[]", "is not a data position of outrider"),
        (b'{"epoch": 3}', "is not a data position of outrider"),
        (b'{"outrider": "data position", "version": 2, "body": {}}', "has version 2; these hooks read up to"),
        (b'{"outrider": "data position", "version": "1"}', "has version '1'"),
        (b'{"outrider": "data position", "version": 1, "body": {}}', "is damaged: its checksum"),
        (b" " * (position_file.LARGEST + 2), "is not a data position of outrider"),
    ],
)
def test_an_error_names_the_file_and_the_reason(tmp_path: Path, text: bytes, said: str) -> None:
    checkpoint, file = saved(tmp_path)
    file.write_bytes(text)
    with pytest.raises(position_file.Unusable, match=said) as raised:
        position_file.read(str(checkpoint))
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("change", [
    {"consumed": 204}, {"consumed": -1}, {"epoch": "1"}, {"shuffle": 1}, {"world": 0}, {"length": None}, {"nth": True},
])  # fmt: skip
def test_numbers_that_no_position_has_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    checkpoint, file = saved(tmp_path)
    with_body(file, lambda body: body["saves"][0]["positions"][0].update(change))
    with pytest.raises(position_file.Unusable, match="does not describe a position"):
        position_file.read(str(checkpoint))


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    checkpoint, file = saved(tmp_path)
    with_body(file, lambda body: body["saves"][0].update(note="more"))
    assert position_file.read(str(checkpoint))[0] == [POSITION]


@settings(deadline=None)
@given(st.data())
def test_a_truncated_or_changed_file_is_never_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    checkpoint, file = saved(tmp_path_factory.mktemp("p"))
    text = file.read_bytes()
    at = data.draw(st.integers(0, len(text) - 2))
    if data.draw(st.booleans()):
        broken = text[:at]
    else:
        broken = text[:at] + bytes([text[at] ^ data.draw(st.integers(1, 255))]) + text[at + 1 :]
    file.write_bytes(broken)
    try:
        assert position_file.read(str(checkpoint))[0] == [POSITION]
    except position_file.Unusable:
        pass


def test_a_folder_full_of_other_files_is_listed_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.pt").write_bytes(b"data")
        assert position_file.read(str(tmp_path / f"{number}.pt")) == ([], "")
    checkpoint, _ = saved(tmp_path)
    assert position_file.read(str(checkpoint))[0] == [POSITION]


def test_a_folder_that_cannot_be_written_fails_with_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    long = tmp_path / ("m" * 250)
    with pytest.raises(OSError, match="name too long"):
        position_file.write(position_file.place(str(long)), "of", [POSITION])
    assert os.listdir(tmp_path) == []


def test_the_volume_keeps_only_the_newest(tmp_path: Path) -> None:
    folder = tmp_path / "positions"
    folder.mkdir()
    for number in range(position_file.MOST_KEPT + 5):
        file = position_file.place(f"/checkpoints/step_{number}.pt", str(tmp_path))
        position_file.write(file, str(number), [POSITION])
        os.utime(file, (number, number))
    position_file.keep_few(str(folder))
    left = {json.loads(file.read_text())["body"]["saves"][0]["of"] for file in folder.iterdir()}
    assert left == {str(number) for number in range(5, position_file.MOST_KEPT + 5)}
