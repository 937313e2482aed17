"""A real collector of OpenTelemetry, which decodes the protobuf and shows what it got: Rotel, from a wheel."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from outrider.runtime.ports import find_port
from tests.local.training import until

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Collector:
    """Rotel, which writes all that it gets into its log."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        import rotel

        self.endpoint = f"http://{address}:{(port := find_port())}"
        self._log = folder / "collector.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(Path(rotel.__file__).parent / "rotel-agent"), "start", "--exporter", "blackhole",
                 "--otlp-http-endpoint", f"{address}:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{find_port()}",
                 "--debug-log", "traces", "--debug-log", "logs", "--debug-log-verbosity", "detailed"],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        until(lambda: "Starting Rotel" in self.text(), self.text)

    def text(self) -> str:
        return ANSI.sub("", self._log.read_text(errors="replace"))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
