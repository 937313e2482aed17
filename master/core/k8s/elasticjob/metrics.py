"""`spec.metrics`, in an ElasticJob or as a flag of `outrider run`: its meaning and its validation.

The regular expression matches the log lines that report the progress of the training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.master.core.k8s.elasticjob.rules import pattern_objections
from outrider.master.core.k8s.values.field_errors import invalid, unsupported
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.patterns import HERE, Verdicts
from outrider.master.core.scaling.log_metric_values import NAMES

IMAGENET = (
    r"Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<step>\d+)/\d+\]\s+Time\s+(?P<latency>\S+)"
    r"(?:.*?\sLoss\s+(?P<loss>\S+))?(?:.*?\sAcc@1\s+(?P<accuracy>\S+))?"
)
"""Pattern for the log lines of PyTorch's imagenet example; KubeDL scales by the same lines."""


def pattern_of(metrics: object) -> str:
    """The pattern of valid metrics; empty if the user wants none."""
    if not isinstance(metrics, dict):
        return ""
    return str(metrics.get("logPattern") or IMAGENET)


def objections(metrics: object, path: str, verdicts: Verdicts = HERE) -> Iterator[str]:
    """Field errors for metrics that fit the schema."""
    pattern = mapping(metrics).get("logPattern")
    if pattern is None:
        return
    wrong = list(pattern_objections(f"{path}.logPattern", pattern, verdicts))
    verdict = None if wrong else verdicts.get(pattern)
    yield from wrong if verdict is None else _groups(f"{path}.logPattern", pattern, verdict.groups)


def _groups(path: str, pattern: str, groups: Sequence[str]) -> Iterator[str]:
    for name in sorted(set(groups) - set(NAMES)):
        yield unsupported(path, f"(?P<{name}>...)", [f"(?P<{name}>...)" for name in NAMES])
    if not groups:
        allowed = ", ".join(f"(?P<{name}>...)" for name in NAMES)
        yield invalid(path, pattern, f"must have a named group: {allowed}")
