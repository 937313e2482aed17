"""The archive of a bundle: the same bytes for the same contents, and nothing else is read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from outrider.cli.bundling import archive
from outrider.cli.bundling.archive import WrongBundle

MEMBERS = {"status.json": b"{}", "logs/1/0/stdout.log": b"a line\n"}


def made() -> bytes:
    return archive.packed(MEMBERS, {"job": "digits"})


def test_it_is_read_again_and_its_bytes_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "digits.tar.gz"
    archive.write(path, made(), "--output")
    head, members = archive.read(path)
    assert members == MEMBERS
    assert (head["job"], head["format"]) == ("digits", "outrider-bundle")
    assert made() == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(WrongBundle) as wrong:
        archive.read(path)
    assert "\n" not in wrong.value.message
    return wrong.value.message


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:gz") as made:
        for entry, body in entries:
            made.addfile(entry, io.BytesIO(body))
    return into.getvalue()


def entry(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.type = size, kind
    return found


@pytest.mark.parametrize(
    "found",
    [
        entry("../../etc/cron.d/x"),
        entry("/etc/passwd"),
        entry("logs/../../x"),
        entry("status.json", kind=tarfile.SYMTYPE),
        entry("status.json", kind=tarfile.LNKTYPE),
        entry("status.json", kind=tarfile.FIFOTYPE),
        entry("logs", kind=tarfile.DIRTYPE),
        entry("a\nb"),
    ],
    ids=lambda found: repr((found.name, found.type)),
)
def test_a_member_that_no_bundle_has_is_refused(tmp_path: Path, found: tarfile.TarInfo) -> None:
    found.linkname = "/etc/passwd"
    assert "which no bundle has" in refused(tmp_path / "x", tar_of((found, b"")))
    assert list(tmp_path.iterdir()) == [tmp_path / "x"], "nothing is ever extracted"


def test_a_bomb_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    size = archive.MOST_BYTES + 1
    assert "more than 128 MiB" in refused(tmp_path / "x", tar_of((entry("status.json", size), bytes(size))))
    many = [(entry(f"logs/{number}", 1 << 20), bytes(1 << 20)) for number in range(130)]
    assert "more than 128 MiB" in refused(tmp_path / "x", tar_of(*many))
    head = entry("status.json", 1 << 40).tobuf()
    assert "more than 128 MiB" in refused(tmp_path / "x", gzip.compress(head))
    tail = made()[:0] + gzip.compress(gzip.decompress(made()) + bytes(size))
    assert "more than 128 MiB" in refused(tmp_path / "x", tail)
    assert "more than 500 members" in refused(tmp_path / "x", tar_of(*[(entry(f"m{n}"), b"") for n in range(600)]))


def test_a_cut_or_changed_archive_is_refused(tmp_path: Path) -> None:
    whole = made()
    for length in (0, 10, len(whole) // 2, len(whole) - 4):
        assert "must be" in refused(tmp_path / "x", whole[:length])
    assert "must be" in refused(tmp_path / "x", b"no archive at all, but some text\n" * 100)
    changed = gzip.decompress(whole).replace(b"a line", b"a lime")
    assert "logs/1/0/stdout.log is missing or was changed" in refused(tmp_path / "x", gzip.compress(changed))


def test_another_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for head, why in (({"format": "other"}, "has no manifest.json of one"), ([1], "has no manifest.json of one"),
                      ({"format": "outrider-bundle", "version": 2}, "format 2, and this Outrider reads format 1"),
                      ({"format": "outrider-bundle", "version": 1}, "lists no members")):  # fmt: skip
        body = json.dumps(head).encode()
        assert why in refused(tmp_path / "x", tar_of((entry("manifest.json", len(body)), body)))
    assert "cannot be read" in missing(tmp_path)


def missing(folder: Path) -> str:
    with pytest.raises(WrongBundle) as wrong:
        archive.read(folder / "nothing")
    return wrong.value.message
