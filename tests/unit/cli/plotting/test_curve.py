"""The scaling curve of a job, drawn from the status that the master's core writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.master.core.scaling.test_autoscaling import scaled, scaling_status, until

pytestmark = pytest.mark.xdist_group("curve")

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def grown() -> dict[str, object]:
    play = scaled(1, 4, 1)
    until(play, 4)
    play.run(60)
    return scaling_status(play)


def test_the_measured_sizes_are_drawn_with_the_decisions(
    ended_job: Any, outrider: Any, grown: dict[str, object]
) -> None:
    ended_job(scaling=grown)
    shown = outrider("status", "digits", "--scaling").stdout
    assert "4 members, ReachMaxReplicas; the search is over for now" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert [row[0] for row in rows if len(row) > 1 and row[0].isdigit() and row[1][0].isdigit()] == ["1", "2", "4"]
    assert "1 member makes" in shown
    assert "2 members are tried." in shown


def test_the_curve_is_a_picture_too(ended_job: Any, outrider: Any, grown: dict[str, object], tmp_path: Path) -> None:
    ended_job(scaling=grown)
    done = outrider("plot", "digits", "--scaling", "-o", str(tmp_path / "curve.png"))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("command", [("status", "digits", "--scaling"), ("plot", "digits", "--scaling")])
def test_a_job_without_automatic_scaling_has_no_curve(ended_job: Any, outrider: Any, command: tuple[str, ...]) -> None:
    ended_job("digits")
    done = outrider(*command)
    assert done.exit_code != 0
    assert "it was started without --scaling" in done.stderr


def test_the_error_for_a_picture_that_cannot_be_written_names_it(
    ended_job: Any, outrider: Any, grown: dict[str, object], tmp_path: Path
) -> None:
    ended_job(scaling=grown)
    done = outrider("plot", "digits", "--scaling", "-o", str(tmp_path / "none" / "curve.png"))
    assert done.exit_code != 0
    assert "cannot be written" in done.stderr


def test_a_job_of_a_cluster_needs_a_kubeconfig(outrider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    for command in (["plot", "digits", "--cluster"], ["status", "digits", "--scaling", "-n", "research"]):
        done = outrider(*command)
        assert done.exit_code == 2
        assert "no cluster found: " in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", [("digits", "--cluster"), ("--scaling", "--cluster")])
def test_status_of_a_cluster_s_job_names_kubectl_for_other_fields(outrider: Any, command: tuple[str, ...]) -> None:
    done = outrider("status", *command)
    assert done.exit_code == 2
    assert "kubectl describe elasticjob JOB" in " ".join(done.stderr.split())
