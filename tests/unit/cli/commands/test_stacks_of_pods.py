"""Errors of `outrider stacks` and `collectives` for pods, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

WRONG = {
    "two are given": (["--pod", "a", "--pods-of", "digits"], "--pod a and --pods-of digits: must not be used together"),
    "a local job too": (["digits", "--pods-of", "digits"], "JOB digits and --pods-of digits: must not be used"),
    "a pod without a name": (["--pod", ""], "--pod: must have a name"),
    "a job without a name": (["--pods-of", ""], "--pods-of: must have a name"),
    "a namespace alone": (["digits", "-n", "research"], "--namespace research: must be used with --pod NAME or"),
}


@pytest.mark.parametrize("what", ["stacks", "collectives"])
@pytest.mark.parametrize(("words", "sentence"), WRONG.values(), ids=WRONG)
def test_contradictory_flags_are_refused(home: Path, outrider: Any, what: str, words: list[str], sentence: str) -> None:
    done = outrider(what, *words)
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())


def test_without_a_kubeconfig_no_cluster_is_found(outrider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    done = outrider("stacks", "--pods-of", "digits")
    assert done.exit_code == 2
    assert "no cluster found: " in " ".join(done.stderr.split())


def test_a_member_that_could_not_answer_is_named_with_the_reason(running_job: Any, outrider: Any) -> None:
    job = running_job()
    why = "no template or launcher is connected to the sidecar"
    job.answers = {"worker-0": {"error": why}, "worker-1": {"ranks": []}}
    done = outrider("stacks", "digits")
    assert done.exit_code == 0
    assert f"worker-0 did not answer: {why}" in done.stderr
    job.answers = {"worker-0": {"error": why}}
    done = outrider("stacks", "digits")
    assert done.exit_code == 1
    assert "no member of digits answered" in done.stderr
