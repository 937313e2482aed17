"""The names of the metrics follow Prometheus' rules, and the reference lists each of them.

https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from outrider.master.service import job_metrics, metrics

PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"
FAMILIES = {
    family.name: family
    for family in text_string_to_metric_families(metrics.Scrape([], 0.0, leads=True).text().decode())
}
OURS = [family for name, family in FAMILIES.items() if not name.startswith("process_")]
NOT_BASE_UNITS = re.compile(r"_(ms|millis\w*|us|minutes|hours|days|percent|kb|mb|mib|gb)(_|$)")


@pytest.mark.parametrize("family", OURS, ids=lambda family: str(family.name))
def test_a_name_has_our_prefix_and_a_base_unit(family: Metric) -> None:
    assert re.fullmatch(r"outrider(_[a-z0-9]+)+", family.name)
    assert not NOT_BASE_UNITS.search(family.name)
    assert not family.name.endswith("_total"), "which the format adds to counters"
    assert family.type in ("gauge", "counter", "histogram")
    if family.type == "histogram" or "age" in family.name.split("_"):
        assert family.name.endswith("_seconds")


@pytest.mark.parametrize("family", OURS, ids=lambda family: str(family.name))
def test_a_help_text_is_one_sentence(family: Metric) -> None:
    assert re.fullmatch(r"[A-Z1][^.]*\.", family.documentation)


def test_labels_are_short_words_and_none_is_of_the_text_format() -> None:
    labels = {*job_metrics.MEMBER, *(label for _, _, labels, *_ in (*job_metrics.COUNTED, *job_metrics.HISTOGRAMS)
                                     for label in labels)}  # fmt: skip
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)?", label) for label in labels)
    assert not labels & {"le", "quantile", "instance"}


def test_the_reference_lists_every_metric_with_its_type() -> None:
    rows = re.findall(r"^\| `(outrider_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    exposed = [(family.name + "_total" * (family.type == "counter"), family.type) for family in OURS]
    assert sorted(rows) == sorted(exposed)
