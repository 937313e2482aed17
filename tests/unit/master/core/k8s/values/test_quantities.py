"""Amounts of memory, and durations, as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core import quantities
from outrider.master.core.k8s.values import durations


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("1Ki", 1024), ("1.5Gi", 3 << 29), ("500M", 500_000_000), (".5k", 500), ("1e3", 1000), ("1E3", 1000),
     ("2E", 2 * 10**18), ("1Ei", 1 << 60), ("1500m", 2), (128974848, 128974848), (1.5, 2), ("-1Mi", -(1 << 20)),
     ("+1", 1), ("1 Gi", None), ("Gi", None), ("", None), ("1gi", None), (None, None), (True, None), ([], None),
     ("1e999999999", None), ("0x10", None), ("١", None)],
)  # fmt: skip
def test_amounts_of_memory(text: object, amount: int | None) -> None:
    assert quantities.parsed(text) == amount


@given(st.integers(min_value=0, max_value=1 << 60))
def test_an_amount_that_is_written_reads_the_same(amount: int) -> None:
    assert quantities.parsed(quantities.written(amount)) == amount


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(0, 0.0), (3, 3.0), (2.5, 2.5), ("90", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5),
     ("1m30s", 90.0), (-1, None), ("-1s", None), ("", None), ("soon", None), ("10m30", None), ("1d", None),
     (True, None), (None, None), (float("inf"), None), (float("nan"), None), ([], None),
     (10**400, None), (1e308, None), ("999999999999h", None), ("31536000001", None)],
)  # fmt: skip
def test_durations(text: object, seconds: float | None) -> None:
    assert durations.parsed(text) == seconds
