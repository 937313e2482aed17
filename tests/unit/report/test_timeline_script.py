"""The pure functions of `timeline.js`, by node where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from typing import Any

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
DATA = {
    "began": 1000, "end": 1000, "causes": [["productive", "c-productive"], ["hang", "c-hang"], ["", "c-none"]],
    "rows": [["0–1", [[0, 1]], [0, 2, 100, 0, 400, 1], 900], ["2", [[2, 2]], [0, 0], 1000]],
    "generations": [[100, "1.1", 3, 3], [500, "1.2", 3, 3]], "faults": [[500, 1, "HangDetected", 2]],
    "holders": [[100, 0, 0, 1], [100, 2, 2, 1], [600, 2, 3, 1]], "names": ["worker-0", "n1", "worker-2", "worker-3"],
}  # fmt: skip


def evaluated(expression: str) -> Any:
    """The value of an expression over the data and its rows."""
    script = (
        f"const T = require({json.dumps(str(resources.files('outrider.report') / 'assets' / 'timeline.js'))});"
        f"const data = {json.dumps(DATA)}, rows = T.rows(data), clock = (unix) => String(unix);"
        f"console.log(JSON.stringify({expression}))"
    )
    done = subprocess.run([NODE or "node", "-e", script], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_spans_are_found_by_time() -> None:
    assert evaluated("rows[0].starts") == [0, 100, 500]
    assert evaluated("[0, 99, 100, 499, 500, 899, 900].map((at) => T.spanAt(rows[0], at))") == [0, 0, 1, 1, 2, 2, -1]


def test_a_place_is_a_sentence() -> None:
    assert evaluated("T.sentence(data, rows, 1, 700, clock)") == (
        "Rank index 2 (2 is worker-3 on n1): productive, 1000 to 1100, 1 min 40 s, generation 1.2."
    )
    assert evaluated("T.sentence(data, rows, 0, 50, clock)").startswith("Rank index 0–1: not part of the job, ")
    assert evaluated("T.sentence(data, rows, 9, 50, clock)") == ""


def test_a_view_stays_within_the_job() -> None:
    whole = {"from": 0, "to": 1000, "first": 0, "last": 2}
    assert evaluated("T.whole(data, 2)") == whole
    assert evaluated("T.within({from: -500, to: 9000, first: -3, last: 7}, data, 2)") == whole
    assert evaluated("T.within(T.zoomed(T.whole(data, 2), 0.5, 1000), data, 2)") == whole | {"from": 500}
    assert evaluated("T.within({from: 990, to: 1090, first: 1, last: 2}, data, 2)") == {
        "from": 900, "to": 1000, "first": 1, "last": 2}  # fmt: skip


def test_ticks_are_round_and_few() -> None:
    assert evaluated("T.ticks(3, 1000, 5)") == [300, 600, 900]
    assert all(count <= 8 for count in evaluated("[1, 50, 1e4, 1e6, 1e8].map((end) => T.ticks(0, end, 6).length)"))


def test_what_is_shorter_than_a_pixel_is_painted_last() -> None:
    painted = evaluated(
        "(() => {const found = []; T.painted(rows, T.whole(data, 2), {left: 0, top: 0, width: 5, height: 20},"
        "(...each) => found.push(each)); return found;})()"
    )
    assert [each[0] for each in painted] == [0, 1, 0, 2]
    assert painted[-1] == [2, 0, 0, 1, 9, True]
