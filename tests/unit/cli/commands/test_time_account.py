"""What `outrider status` says of the time account."""

from __future__ import annotations

from outrider.cli.text import time_account


def test_new_steps_come_first_then_the_largest_causes_and_small_ones_are_left_out() -> None:
    spent = {"productive": 60.0, "importing": 10.0, "data_wait": 25.0, "hang": 0.5, "stopping": 4.5}
    assert time_account({"time": spent}) == "productive 60.0 %, data_wait 25.0 %, importing 10.0 %, stopping 4.5 %"


def test_a_job_that_has_not_begun_or_an_older_master_has_none() -> None:
    assert time_account({"time": {}}) == time_account({}) == ""
