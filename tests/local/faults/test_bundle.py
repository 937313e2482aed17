"""What a real job leaves for a person who shall find out what happened: a bundle without secrets, and its replay."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.cli.bundling import archive
from outrider.master.recording import recorder
from tests import planted
from tests.local.chapters import live_through
from tests.local.training import DEADLINE, Training

pytestmark = pytest.mark.slow
ACTION = " < "


class Leaky(Training):
    """A job with a secret wherever a user may leave one, whose rank 1 fails three times."""

    bundles: Path

    def bundled(self, name: str, *flags: str) -> dict[str, bytes]:
        self.outrider("bundle", self.job, "-o", str(self.bundles / name), *flags)
        return archive.read(self.bundles / name)[1]

    def unpacked(self, name: str) -> bytes:
        return gzip.decompress((self.bundles / name).read_bytes())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaky]:
    for name, value in planted.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    home = Path(tempfile.mkdtemp(prefix="or-"))
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"rules": planted.RULES}))
    made = Leaky(
        tmp_path, home, "--nnodes", "2", "--rules", str(rules), "--metrics", f"loss {planted.S[20]}(?P<loss>x)?",
        script=planted.SCRIPT, arguments=" ".join(planted.ARGUMENTS),
    )  # fmt: skip
    made.bundles = tmp_path
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(home)


def test_a_bundle_of_a_real_job(job: Leaky, subtests: pytest.Subtests) -> None:
    live_through(subtests, job, a_running_job_is_bundled, an_ended_job_is_bundled, the_replay_shows_the_same_verdict,
                 logs_are_there_only_with_the_flag)  # fmt: skip


def a_running_job_is_bundled(job: Leaky) -> None:
    job.event("WorkerExited", 0, "LoginError", planted.S[21])
    job.event("GenerationRunning", 0, "Generation 1.4")
    members = job.bundled("running.tar.gz")
    assert planted.found_in(job.unpacked("running.tar.gz")) == []
    assert set(members) == {archive.RECORDING, archive.STATUS, archive.EVENTS, archive.SPEC, archive.COMMAND,
                            archive.VERSIONS}  # fmt: skip
    command = json.loads(members[archive.COMMAND])
    assert set(planted.ENVIRONMENT) <= set(command["environment"])
    assert command["argv"][:2] == ["outrider", "run"]
    assert "--api-key" in command["argv"]
    assert "as recorded" in job.outrider("replay", str(job.bundles / "running.tar.gz"))


def an_ended_job_is_bundled(job: Leaky) -> None:
    (job.folder / "end").touch()
    assert job.process.wait(DEADLINE) == 0, job.story()
    secrets = [(job.job_folder / name).read_text().strip() for name in ("token", "master.key")]
    members = job.bundled("ended.tar.gz")
    content = job.unpacked("ended.tar.gz")
    assert planted.found_in(content) == []
    assert not [each for each in secrets if each.encode() in content]
    assert json.loads(members[archive.STATUS])["phase"] == "succeeded"
    kinds = [json.loads(line)["kind"] for line in members[archive.EVENTS].splitlines()]
    assert kinds == [event["kind"] for event in job.events()]
    kept = gzip.decompress((job.job_folder / recorder.FILE).read_bytes())
    assert planted.found_in(kept) == [], "not even in the job's own folder"


def the_replay_shows_the_same_verdict(job: Leaky) -> None:
    shown = job.outrider("replay", str(job.bundles / "ended.tar.gz"))
    assert planted.found_in(shown.encode()) == []
    assert shown.splitlines()[-1].endswith("the core of this version decides as recorded")
    assert "Rank 1 on worker-1 failed with LoginError: <redacted-" in shown
    assert "Rank 1 on worker-1 exited with code 3" in shown
    assert "Rank 1 on worker-1 failed with FileNotFoundError: <redacted-" in shown
    announced = [
        line.partition("Announce kind='")[2].partition("'")[0] for line in shown.splitlines() if ACTION in line
    ]
    assert [kind for kind in announced if kind] == [event["kind"] for event in job.events()]


def logs_are_there_only_with_the_flag(job: Leaky) -> None:
    members = job.bundled("logs.tar.gz", "--with-logs")
    logs = b"".join(body for name, body in members.items() if name.startswith("logs/"))
    assert planted.S[15].encode() in logs
    assert planted.S[22].encode() in logs
    assert planted.S[21].encode() in members[archive.EVENTS]
    others = b"".join(members[name] for name in (archive.RECORDING, archive.STATUS, archive.SPEC, archive.COMMAND))
    assert planted.found_in(others) == [], "the rest is as without the flag"
