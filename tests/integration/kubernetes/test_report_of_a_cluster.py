"""`outrider report JOB --cluster` with the Python client of Kubernetes, from a server that has an ElasticJob."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from outrider.cli.main import main
from outrider.master.core.k8s.elasticjob import history
from tests.unit.report.documents import fault, part
from tests.unit.report.reader import Page

JOBS = "/apis/outrider.dev/v1alpha1/namespaces/research/elasticjobs/digits"
HISTORIES = "/apis/outrider.dev/v1alpha1/namespaces/research/elasticjobhistories/digits"
JOB = {
    "metadata": {"name": "digits", "namespace": "research", "uid": "u"},
    "status": {"phase": "Succeeded", "step": 12_400, "restarts": 1, "time": {"productive": 15_000.0, "waiting": 1000.0},
               "members": [{"id": "worker-0", "rankIndex": 0, "state": "done", "node": "n1"}], "faults": []},
}  # fmt: skip
Report = Callable[[dict[str, Any]], Result]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Report]:
    """Runs the command against a server that has these documents; what is a number is a status code."""
    documents: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = documents.get(self.path, 404)
            refusal = {"kind": "Status", "message": "no"}
            body = json.dumps(refusal if isinstance(found, int) else found).encode()
            self.send_response(found if isinstance(found, int) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "kubeconfig").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "", "namespace": "research"}}],
    }))  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    def run(having: dict[str, Any]) -> Result:
        documents.update(having)
        return CliRunner().invoke(main, ["report", "digits", "--cluster", "-o", "-"], prog_name="outrider")

    yield run
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_elasticjob_is_reported_with_all_parts_of_its_history(report: Report) -> None:
    parts = {
        "term-1": history.packed(part(4, [fault(1000.0)], term=1)),
        "term-10": history.packed(part(4, [fault(3000.0, 1)], term=10)),
        "term-2": "no base64",
    }
    text = Page(report({JOBS: JOB, HISTORIES: history.document(JOB, parts)}).output).text
    assert "ElasticJob research/digits" in text
    assert "Kind: WorkerExited Rank: 2 Rank index: 2 Member: worker-2 Node: node-2" in text
    assert "Kind: WorkerExited Rank: 1 Rank index: 1 Member: worker-1 Node: node-1" in text
    assert "ElasticJobHistory term-2 is left out: " in text
    assert "There is no history between master 1 and master 10." in text


def test_a_history_that_is_not_there_or_forbidden_is_a_sentence(report: Report) -> None:
    text = Page(report({JOBS: JOB}).output).text
    assert "The history is left out: ElasticJobHistory 'digits' not found in the namespace research" in text
    text = Page(report({JOBS: JOB, HISTORIES: 403}).output).text
    assert "The history is left out: your credentials may not get the ElasticJobHistory 'digits'" in text
    assert "digits succeeded" in text


def test_an_elasticjob_that_is_not_there_is_an_error(report: Report) -> None:
    done = report({})
    assert done.exit_code == 2
    assert "ElasticJob 'digits' not found in the namespace research" in done.output
