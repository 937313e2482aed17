"""`outrider bundle` and `outrider replay` as a user gives them: what they print, and what they refuse."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from outrider.cli.bundling import archive
from outrider.cli.commands import replay
from outrider.cli.main import main
from outrider.master.recording import recorder
from tests.unit.master.core.play import job
from tests.unit.master.core.ps_play import ps_job
from tests.unit.master.core.test_journal import Kept, KeptPs, hurt


def outrider(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module", params=[lambda: Kept(job(3)), lambda: KeptPs(ps_job())], ids=["allreduce", "ps"])
def recording(request: pytest.FixtureRequest) -> bytes:
    play = request.param()
    hurt(play)
    return b"".join(recorder.lines(play.journal.taken()))


def bundled(folder: Path, recording: bytes, **about: Any) -> Path:
    path = folder / "b.tar.gz"
    path.write_bytes(archive.packed({archive.RECORDING: recording} if recording else {}, {"job": "digits", **about}))
    return path


def test_an_ended_job_is_bundled_from_its_folder(
    ended_job: Callable[..., Path], tmp_path: Path, recording: bytes
) -> None:
    folder = ended_job(phase="succeeded")
    for name in (recorder.FILE, recorder.FAILED):
        (folder / name).write_bytes(gzip.compress(recording))
    done = outrider("bundle", "digits", "-o", tmp_path / "b.tar.gz")
    assert done.exit_code == 0, done.output
    head, members = archive.read(tmp_path / "b.tar.gz")
    assert members[archive.RECORDING] == recording
    assert json.loads(members[archive.STATUS])["phase"] == "succeeded"
    assert head["left_out"] == ["the job's spec cannot be read", "the job's command is not known"]
    for flags in ([], ["--failed"]):
        assert outrider("replay", tmp_path / "b.tar.gz", *flags).exit_code == 0
    again = outrider("bundle", "digits", "-o", tmp_path / "b.tar.gz")
    assert again.exit_code == 2
    assert "must be a new file" in again.output


def test_recordings_of_earlier_masters_are_named_as_missing(
    ended_job: Callable[..., Path], tmp_path: Path, recording: bytes
) -> None:
    folder = ended_job(phase="succeeded", generation="3.1")
    (folder / recorder.FILE).write_bytes(gzip.compress(recording))
    done = outrider("bundle", "digits", "-o", tmp_path / "b.tar.gz")
    assert "left out: no recording of masters 1 to 2: each master begins a new one" in done.output


def test_a_job_whose_master_was_killed_has_a_bundle_without_a_replay(
    ended_job: Callable[..., Path], tmp_path: Path
) -> None:
    ended_job(phase="failed")
    done = outrider("bundle", "digits", "-o", tmp_path / "b.tar.gz")
    assert done.exit_code == 0
    assert "left out: digits has no recording: its master was killed" in done.output
    replay = outrider("replay", tmp_path / "b.tar.gz")
    assert replay.exit_code == 2
    assert "there is nothing to replay" in replay.output


def test_each_event_is_shown_with_its_decisions(tmp_path: Path, recording: bytes) -> None:
    shown = outrider("replay", bundled(tmp_path, recording))
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    events = recording.count(b',">",')
    assert lines[0] == f"# digits, recorded by Outrider 0.1.0: {events} events"
    assert lines[-1] == f"# {events} events replayed: the core of this version decides as recorded"
    assert sum(" > " in line for line in lines) == events
    assert any(" < Announce kind='" in line and "reason='" in line for line in lines)
    brief = outrider("replay", bundled(tmp_path, recording), "--brief").output.splitlines()
    assert len(brief) < len(lines)
    assert "without a decision left out" in brief[-2]


def test_until_an_event_or_a_time_and_a_single_event(tmp_path: Path, recording: bytes) -> None:
    path = bundled(tmp_path, recording)
    shown = outrider("replay", path, "--until", 5).output.splitlines()
    assert [line.split()[0] for line in shown if " > " in line] == ["1", "2", "3", "4", "5"]
    at = shown[-2].split()[1] if " > " in shown[-2] else shown[-2].split()[0]
    one = outrider("replay", path, "--event", 5).output.splitlines()
    assert one[1].startswith("# state: ")
    assert [line.split()[0] for line in one if " > " in line and not line.startswith("#")] == ["5"]
    until = outrider("replay", path, "--until", at).output.splitlines()
    assert len(until) <= len(outrider("replay", path).output.splitlines())
    assert outrider("replay", path, "--event", 999_999).exit_code == 2
    wrong = outrider("replay", path, "--until", "soon")
    assert wrong.exit_code == 2
    assert "--until soon: must be a number of an event, or a time" in wrong.output
    for impossible in ("25:61:00", "2026-02-31T10:00:00Z"):
        assert f"--until {impossible}: must be" in outrider("replay", path, "--until", impossible).output
    late = outrider("replay", path, "--until", "2999-01-01T00:00:00Z").output.splitlines()
    assert late[-2].startswith("# --until 2999-01-01T00:00:00Z: no event is later; the recording begins at ")


def test_a_core_that_decides_otherwise_is_exit_code_1(tmp_path: Path, recording: bytes) -> None:
    changed = recording.replace(b'"@":"actions.Send"', b'"@":"actions.HidePod"', 1)
    done = outrider("replay", bundled(tmp_path, changed))
    assert done.exit_code == 1
    assert " ! recorded instead: " in done.output
    assert "HidePod " in done.output
    assert "# after 1 of " in done.output


def test_what_cannot_be_replayed_is_refused_in_one_sentence(tmp_path: Path, recording: bytes) -> None:
    def refused(content: bytes, *flags: str) -> str:
        done = outrider("replay", bundled(tmp_path, content), *flags)
        assert (done.exit_code, done.output.count("\n")) == (2, 1)
        return done.output

    assert "Outrider 9.0 made it" in refused(recording.replace(b'"outrider":"0.1.0"', b'"outrider":"9.0"', 1))
    assert "reads version 1" in refused(recording.replace(b'"version":1', b'"version":7', 1))
    assert "was cut off" in refused(recording[: len(recording) // 2].rpartition(b"\n")[0])
    assert "is not JSON" in refused(recording[: len(recording) // 2])
    older = bundled(tmp_path, recording.replace(b'"outrider":"0.1.0"', b'"outrider":"9.0"', 1))
    assert outrider("replay", older, "--any-version").exit_code == 0


@contextlib.contextmanager
def limited(room: int) -> Iterator[None]:
    """As after `ulimit -Sv`: this process may take so many more bytes; 0: as many as it likes."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if room:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(("room", "most"), [(0, 0.125), (1 << 27, 0.0625)])
def test_a_recording_that_asks_for_any_number_of_members_takes_bounded_memory(
    room: int, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MORE_MEMORY", 1 << 27)
    play = Kept(job(3))
    hurt(play)
    raw = b"".join(recorder.lines(play.journal.taken()))
    lines = raw.splitlines()
    state = json.loads(lines[1])
    state["state"]["target"] = 1 << 40
    state["state"].setdefault("spec", {}).update(max_members=1 << 40, replicas=1 << 40)
    path = bundled(tmp_path, b"\n".join([lines[0], json.dumps(state).encode(), *lines[2:]]))
    with limited(room):
        done = outrider("replay", path)
    assert done.exit_code == 2
    named = re.search(r"it takes more than ([\d.]+) GiB of memory", done.output)
    assert named is not None, done.output
    assert most / 2 < float(named[1]) <= most


def test_control_characters_of_a_bundle_are_not_printed(tmp_path: Path) -> None:
    done = outrider("replay", bundled(tmp_path, b"", job="\x1b]0;title\x07"))
    assert "\x1b" not in done.output
