"""`spec.metrics` as the user wrote it, in an ElasticJob or for `outrider run`. It names the lines of the log that say
how the training goes; here is what is wrong with the expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.master.core.k8s.elasticjob.rules import pattern_objections
from outrider.master.core.k8s.values.fields import mapping, shown
from outrider.master.core.k8s.values.patterns import HERE, Verdicts
from outrider.master.core.scaling.log_metric_values import NAMES

IMAGENET = (
    r"Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<step>\d+)/\d+\]\s+Time\s+(?P<latency>\S+)"
    r"(?:.*?\sLoss\s+(?P<loss>\S+))?(?:.*?\sAcc@1\s+(?P<accuracy>\S+))?"
)
"""The lines of PyTorch's imagenet example, by which KubeDL scales too."""


def asked(metrics: object) -> str:
    """The pattern of metrics that `objections` has nothing against; empty where none are wanted."""
    if not isinstance(metrics, dict):
        return ""
    return str(metrics.get("logPattern") or IMAGENET)


def objections(metrics: object, path: str, verdicts: Verdicts = HERE) -> Iterator[str]:
    """Sentences that begin with the path of a field. It fits the schema."""
    pattern = mapping(metrics).get("logPattern")
    if pattern is None:
        return
    wrong = list(pattern_objections(f"{path}.logPattern", pattern, verdicts))
    verdict = None if wrong else verdicts.get(pattern)
    yield from wrong if verdict is None else _groups(f"{path}.logPattern", pattern, verdict.groups)


def _groups(path: str, pattern: str, groups: Sequence[str]) -> Iterator[str]:
    allowed = f"it may have {', '.join(f'(?P<{name}>...)' for name in NAMES)}"
    for name in sorted(set(groups) - set(NAMES)):
        yield f"{path}: there is no metric {name}; {allowed}"
    if not groups:
        yield f"{path}: {shown(pattern)} has no named group; {allowed}"
