"""The bundle of a job in a cluster: the command's own requests over real HTTP, to an API server of a few documents.

It forwards no port, so there is no recording: tests/integration/kubernetes/auth/test_recording_access.py reads one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from outrider.cli.bundling import archive
from tests import planted

EVENT = {"metadata": {"name": "a", "namespace": "team"}, "involvedObject": {"kind": "ElasticJob"}, "type": "Warning",
         "reason": "WorkerExited", "message": planted.S[1], "lastTimestamp": "2026-11-21T03:00:00Z"}  # fmt: skip
LEADER = {"metadata": {"name": "outrider-master-1", "namespace": "outrider-system"}}
DOCUMENTS = {
    "/apis/outrider.dev/v1alpha1/namespaces/team/elasticjobs/train": planted.elastic_job(),
    "/api/v1/namespaces/team/events": {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [EVENT]},
    "/api/v1/namespaces/outrider-system/pods": {"kind": "PodList", "apiVersion": "v1", "items": [LEADER]},
}  # fmt: skip


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = DOCUMENTS.get(urlsplit(self.path).path)
        body = json.dumps(found or {"kind": "Status", "message": "not here", "code": 403}).encode()
        self.send_response(200 if found else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_about: object) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "users": [{"name": "u", "user": {"token": "of-an-editor"}}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield
        server.shutdown()
        serving.join()


def test_it_has_the_document_and_the_events_without_secrets(cluster: None, outrider: Any, tmp_path: Path) -> None:
    done = outrider("bundle", "train", "--cluster", "-o", tmp_path / "b.tar.gz")
    assert done.exit_code == 0, done.output
    head, members = archive.read(tmp_path / "b.tar.gz")
    assert (head["job"], head["left_out"]) == ("team/train", ["no recording"])
    assert set(members) == {archive.ELASTICJOB, archive.EVENTS, archive.VERSIONS}
    assert planted.found_in(b"".join(members.values())) == []
    assert json.loads(members[archive.EVENTS])["kind"] == "WorkerExited"
    assert (
        "left out: no recording: your credentials may not forward a port of the pod 'outrider-master-1'" in done.output
    )


def test_a_job_that_is_not_there_is_an_error(cluster: None, outrider: Any, tmp_path: Path) -> None:
    done = outrider("bundle", "other", "--cluster", "-o", tmp_path / "b.tar.gz")
    assert done.exit_code == 2
    assert "may not get the ElasticJob 'other'" in done.output
    assert not (tmp_path / "b.tar.gz").exists()


def test_flags_that_do_not_go_together_are_refused(home: Path, outrider: Any) -> None:
    for words in (["--cluster"], ["train", "--cluster", "--with-logs"]):
        done = outrider("bundle", *words)
        assert done.exit_code == 2
        assert "--cluster: must be used with JOB and without --with-logs" in done.output
