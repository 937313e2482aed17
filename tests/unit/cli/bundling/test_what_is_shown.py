"""What a bundle shows of command lines, environments and documents."""

from __future__ import annotations

import json

import pytest

from outrider.cli.bundling import command_line, documents
from outrider.master.recording.scrubbing import Scrubber
from tests import planted
from tests.unit.cli.conftest import document


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ("outrider run --nnodes 2 --nproc-per-node=4 train.py", "outrider run --nnodes 2 --nproc-per-node=4 train.py"),
        ("/usr/bin/python3.11 /home/me/train.py --lr 0.1", "python3.11 train.py --lr 0.1"),
        ("torchrun --nnodes 1:4 --max_restarts 3", "torchrun --nnodes 1:4 --max_restarts 3"),
        ("python -m torch.distributed.run --rdzv-backend c10d", "python -m torch.distributed.run --rdzv-backend c10d"),
        ("--api-key abc --password=abc abc", "--api-key <redacted> --password=<redacted> <redacted>"),
        ("--nnodes abc --nproc-per-node=abc", "--nnodes <redacted> --nproc-per-node=<redacted>"),
        ("-pabc -x abc -m abc", "-p<redacted> -x <redacted> -m <redacted>"),
        ("TOKEN=abc https://a:b@c/?d=e", "<redacted> <redacted>"),
        ("--rdzv-endpoint=host:29400 --rdzv-id abc", "--rdzv-endpoint=<redacted> --rdzv-id <redacted>"),
    ],
)
def test_a_command_line_keeps_flags_and_values_that_are_known(argv: str, shown: str) -> None:
    assert " ".join(command_line.shown(argv.split())) == shown
    assert command_line.shown(shown.split()) == shown.split(), "and is the same when it is shown again"


def test_an_environment_keeps_its_names() -> None:
    assert command_line.names({"B_TOKEN": "x", "A": "y", "not a name": "z"}) == ["A", "B_TOKEN"]


def test_no_planted_secret_is_shown_of_a_command_or_its_environment() -> None:
    shown = json.dumps([command_line.shown(planted.ARGUMENTS), command_line.names(planted.ENVIRONMENT)])
    assert planted.found_in(shown.encode()) == []


def test_no_planted_secret_is_shown_of_an_elastic_job() -> None:
    found = documents.elastic_job(planted.elastic_job(), Scrubber())
    assert planted.found_in(json.dumps(found).encode()) == []
    metadata, spec = found["metadata"], found["spec"]
    assert metadata["labels"] == {"team.example/token": "<redacted>", "outrider.dev/inject": "true"}
    assert set(metadata["annotations"]) == set(planted.elastic_job()["metadata"]["annotations"])
    (container,) = spec["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "OTHER"}, {"name": "TOKEN"}]
    assert container["command"] == ["python", "train.py", "--password", "<redacted>"]
    assert (spec["replicas"], container["resources"]["limits"]["memory"]) == (2, "2Gi")
    assert found["status"]["phase"] == "running"


def test_a_status_keeps_words_names_and_numbers() -> None:
    found = documents.status(document(message="a secret of the user"), Scrubber())
    assert (found["phase"], found["generation"], found["step"], found["goodput"]) == ("running", "1.2", 1240, 0.962)
    assert found["members"][0]["id"] == "worker-0"
    assert found["faults"][0]["kind"] == "WorkerExited"
    assert found["message"].startswith("<redacted-")
    assert found["faults"][0]["reason"].startswith("<redacted-")


def test_an_event_of_the_cluster_has_no_message() -> None:
    event = {"reason": "WorkerExited", "type": "Warning", "count": 2, "message": planted.S[1],
             "lastTimestamp": "2026-11-21T03:00:00Z", "metadata": {"name": planted.S[2]}}  # fmt: skip
    shown = documents.event_of_the_cluster(event, Scrubber())
    assert shown == {"time": "2026-11-21T03:00:00Z", "kind": "WorkerExited", "severity": "warning", "count": 2}


def test_an_event_has_its_reason_only_with_the_logs() -> None:
    line = {"seq": 3, "time": "2026-11-21T03:00:00Z", "kind": "WorkerExited", "severity": "warning",
            "member": "worker-0", "generation": "1.1", "reason": "secret", "detail": {"a": "secret"}}  # fmt: skip
    shown = documents.event(line, Scrubber(), with_reason=False)
    assert "secret" not in json.dumps(shown)
    assert (shown["kind"], shown["member"], shown["time"]) == ("WorkerExited", "worker-0", "2026-11-21T03:00:00Z")
    assert documents.event(line, Scrubber(), with_reason=True)["reason"] == "secret"
