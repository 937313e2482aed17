"""`outrider doctor`: its command line, and what it finds without starting anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import home as home


def checks(result: Any, *levels: str) -> dict[str, str]:
    found = json.loads(result.stdout)["findings"]
    return {each["check"]: each["text"] for each in found if each["level"] in (levels or ("ok", "warning", "problem"))}


def test_a_wrong_command_line_of_run_is_a_finding(home: Path, outrider: Any) -> None:
    result = outrider("doctor", "--json", "--nnodes", "0", "train.py")
    assert result.exit_code == 1
    assert "--nnodes 0: must be" in checks(result, "problem")["command"]
    result = outrider("doctor", "--json", "nosuch.py")
    assert "script 'nosuch.py' not found" in checks(result, "problem")["command"]
    result = outrider("doctor", "--json", "--job")
    assert "requires an argument" in checks(result, "problem")["command"]


def test_an_elasticjob_is_checked_without_a_cluster(
    home: Path, outrider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    file = tmp_path / "job.yaml"
    file.write_text("kind: ElasticJob\nmetadata: {name: a}\nspec: {replicaSpecs: {cook: {replicas: 1}}}\n")
    result = outrider("doctor", "-f", file, "--json")
    assert result.exit_code == 1
    assert "a: " in checks(result, "problem")["file"]
    assert "no cluster found" in checks(result, "problem")["API server"]


@pytest.mark.parametrize("arguments", [("--cluster", "train.py"), ("-n", "a", "--isolate"), ("-f",)])
def test_flags_that_do_not_fit_are_refused(home: Path, outrider: Any, arguments: tuple[str, ...]) -> None:
    assert outrider("doctor", *arguments).exit_code == 2
