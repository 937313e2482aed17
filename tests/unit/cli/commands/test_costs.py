"""What `outrider status` says of the time that was not spent on new steps."""

from __future__ import annotations

from outrider.cli.text import costs


def test_the_largest_costs_come_first_and_small_ones_are_left_out() -> None:
    spent = {"productive": 60.0, "importing": 10.0, "data_wait": 25.0, "hang": 0.5, "stopping": 4.5}
    assert costs({"time": spent}) == "data wait 25.0 %, importing 10.0 %, stopping 4.5 %"


def test_a_job_that_has_not_begun_or_an_older_master_has_none() -> None:
    assert costs({"time": {}}) == costs({}) == costs({"time": {"productive": 3.0}}) == ""
