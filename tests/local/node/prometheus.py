"""A real Prometheus that scrapes the masters of local jobs, whose metrics are on sockets, and evaluates our alerts."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.local.training import DEADLINE, until

Source = Callable[[], bytes]


class Prometheus:
    """Sources of metrics by the names of their targets; Prometheus asks each once a second."""

    def __init__(self, folder: Path, sources: Mapping[str, Source], rules: Mapping[str, Any]) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(sources))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        served = f"127.0.0.1:{self._server.server_port}"
        scrapes = [{"job_name": name, "metrics_path": f"/{name}", "honor_labels": True,
                    "static_configs": [{"targets": [served], "labels": {"instance": name}}]}
                   for name in sources]  # fmt: skip
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (folder / "alerts.yaml").write_text(yaml.safe_dump(rules))
        config = {"global": every, "rule_files": ["alerts.yaml"], "scrape_configs": scrapes}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with (log := folder / "prometheus.log").open("wb") as output:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/series",
                 "--web.listen-address=127.0.0.1:0"],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        ready = re.compile(r'msg="Listening on" address=(\S+)(?s:.*)msg="Server is ready')
        self._address = until(lambda: ready.search(log.read_text()), log.read_text).group(1)

    def query(self, query: str) -> list[dict[str, Any]]:
        """The present vector."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{asked}", timeout=DEADLINE) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._server.shutdown()
        self._thread.join(DEADLINE)
        self._server.server_close()


def _handler(sources: Mapping[str, Source]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = sources[self.path.removeprefix("/")]()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Prometheus reports failed scrapes by itself."""

    return Handler


@contextlib.contextmanager
def watching(folder: Path, sources: Mapping[str, Source], rules: Mapping[str, Any]) -> Iterator[Prometheus]:
    made = Prometheus(folder, sources, rules)
    try:
        yield made
    finally:
        made.close()
