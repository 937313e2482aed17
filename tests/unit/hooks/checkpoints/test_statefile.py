"""The record of a saved state names a complete file, wherever a write is interrupted."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from training_hooks.checkpoints import planned_save_file


def save(folder: Path, step: int, content: bytes) -> Path:
    path = Path(planned_save_file.next_path(str(folder), step))
    path.write_bytes(content)
    planned_save_file.commit(str(folder), str(path), {"step": step})
    return path


def found(folder: Path) -> Path | None:
    record = planned_save_file.read(str(folder))
    path = planned_save_file.checked(str(folder), record) if record else None
    return Path(path) if path else None


def test_the_newest_state_counts_and_older_ones_go(tmp_path: Path) -> None:
    save(tmp_path, 10, b"ten")
    path = save(tmp_path, 20, b"twenty")
    assert found(tmp_path) == path
    assert sorted(each.name for each in tmp_path.iterdir()) == ["migration.json", path.name]


def test_without_a_save_there_is_no_state(tmp_path: Path) -> None:
    assert found(tmp_path) is None
    planned_save_file.note(str(tmp_path), "start", world=2)
    assert found(tmp_path) is None


def test_the_history_is_ordered_and_bounded(tmp_path: Path) -> None:
    for number in range(planned_save_file.MOST_HISTORY + 5):
        planned_save_file.note(str(tmp_path), "start", world=number)
    record = planned_save_file.read(str(tmp_path))
    assert record is not None
    assert [each["world"] for each in record["history"]] == list(range(5, planned_save_file.MOST_HISTORY + 5))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("hurt", "word"), [(shorten, "bytes instead of"), (damage, "is damaged"), (Path.unlink, "cannot be read")]
)
def test_a_changed_state_is_not_used(tmp_path: Path, hurt: Callable[[Path], None], word: str) -> None:
    hurt(save(tmp_path, 10, b"content"))
    with pytest.raises(planned_save_file.Unusable, match=word):
        found(tmp_path)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a record"),
        ('{"version": "1"}', "is not a record"),
        ('{"version": 2, "file": "state-1-1.pth"}', "has version 2, newer than the known version 1"),
        ('{"version": 1, "file": "../../etc/passwd"}', "names no file of a saved state"),
        ('{"version": 1, "file": 7}', "names no file of a saved state"),
        ('{"version": 1, "names": 7}', "its names or its step are invalid"),
        ('{"version": 1, "names": [[]]}', "its names or its step are invalid"),
        ('{"version": 1, "step": "ten"}', "its names or its step are invalid"),
    ],
)
def test_a_foreign_record_is_not_used(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "migration.json").write_text(text)
    with pytest.raises(planned_save_file.Unusable, match=word):
        found(tmp_path)


def test_a_record_of_a_newer_version_is_left_as_it_is_until_a_state_is_saved(tmp_path: Path) -> None:
    newer = '{"version": 2, "file": "state-1-1.pth"}'
    (tmp_path / "migration.json").write_text(newer)
    planned_save_file.note(str(tmp_path), "start", world=2)
    assert (tmp_path / "migration.json").read_text() == newer
    path = save(tmp_path, 10, b"ten")
    assert found(tmp_path) == path


def killed_at(number: int, do: Callable[[], object]) -> bool:
    """Saves in a process that is killed before its `number`-th file operation; returns whether it was complete."""
    pid = os.fork()
    if pid == 0:
        left = number

        def count(event: str, _arguments: object) -> None:
            nonlocal left
            if event.startswith(("open", "os.", "shutil.")) and event != "os.kill":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        do()
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def test_a_save_that_is_killed_anywhere_leaves_a_whole_state(tmp_path: Path) -> None:
    save(tmp_path, 1, b"1" * 1000)
    for number in range(1, 200):
        step = 1 + number
        is_done = killed_at(number, lambda step=step: save(tmp_path, step, str(step).encode() * 1000))  # type: ignore[misc]
        path = found(tmp_path)
        assert path is not None
        record = json.loads((tmp_path / "migration.json").read_text())
        assert path.read_bytes() == str(record["step"]).encode() * 1000
        if is_done:
            assert number > 5, "it was killed at some moments"
            assert record["step"] == step
            return
    raise AssertionError("it never came to its end")
