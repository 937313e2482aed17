"""The pure functions of the page's scripts, by node where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from typing import Any

import pytest

from tests.unit.report.test_timeline_script import DATA

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def evaluated(expression: str) -> Any:
    """The value of an expression over the timeline's data."""
    folder = resources.files("outrider.cli.dashboard") / "assets"
    loaded = "".join(
        f"globalThis.{name} = require({json.dumps(str(folder / f'{name.lower()}.js'))});"
        for name in ("Dom", "Account", "Members")
    )
    script = f"{loaded} const data = {json.dumps(DATA)}; console.log(JSON.stringify({expression}))"
    done = subprocess.run([NODE or "node", "-e", script], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_share_of_new_steps_over_time_adds_up_to_the_timeline() -> None:
    samples = evaluated("Account.sampled(data, 10)")
    assert [at for at, _made, _wall in samples] == [1000 + 10 * n for n in range(11)]
    assert samples[-1][1:] == pytest.approx([180.0, 260.0])
    assert samples[1][1:] == pytest.approx([10.0, 10.0])  # ranks 0 and 1 were not part of the job yet
    shares = evaluated("Account.shares(Account.sampled(data, 10)).map((each) => each[2])")
    assert shares[1] == 1.0
    assert shares[6] == pytest.approx(1 / 3)


def test_durations_are_those_of_the_report() -> None:
    given = [0.0001, 0.0214, 7.1, 59.96, 185, 20040, 273600]
    assert evaluated(f"{given}.map(Dom.seconds)") == [
        "0 s", "0.021 s", "7.1 s", "1 min 00 s", "3 min 05 s", "5 h 34 min", "3 d 04 h",
    ]  # fmt: skip
    assert evaluated("[null, NaN, undefined].map(Dom.seconds)") == ["–", "–", "–"]


def test_members_without_a_number_come_last_or_first_and_equal_ones_keep_their_order() -> None:
    members = [{"id": f"worker-{n}", "rank_index": index, "node": f"n{n % 2}", "state": "running", "role": "worker"}
               for n, index in enumerate((2, None, 0, 1))]  # fmt: skip
    listed = f"Members.listed({json.dumps(members)}, FILTER, ORDER).map((each) => each.id)"
    up = listed.replace("FILTER", "''").replace("ORDER", "{column: 1, down: false}")
    assert evaluated(up) == ["worker-2", "worker-3", "worker-0", "worker-1"]
    by_node = listed.replace("FILTER", "'N1 worker'").replace("ORDER", "{column: 3, down: true}")
    assert evaluated(by_node) == ["worker-1", "worker-3"]
