"""`--metrics 'loss (?P<loss>\\S+)'`: which lines of rank 0's log say how the training goes."""

from __future__ import annotations

import click

from outrider.master.core.k8s.elasticjob import metrics as elasticjob_metrics

DEFAULT = "default"


def pattern(_context: click.Context, _param: click.Parameter, value: str | None) -> str:
    """A click callback; empty where nothing is wanted."""
    if value is None:
        return ""
    metrics = {} if value == DEFAULT else {"logPattern": value}
    for wrong in elasticjob_metrics.objections(metrics, ""):
        raise click.BadParameter(wrong.partition(": ")[2])
    return elasticjob_metrics.asked(metrics)
