"""With an invalid setting, a master does not start, and names the variable."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from outrider.master.core.spec import Entry, JobSpec, RoleLimits, Rule
from outrider.master.service import settings, spec_json
from outrider.runtime.curve_keys import new_key_pair
from outrider.runtime.settings import Environment, WrongSetting
from outrider.wire.ids import JobName, Role

SPEC = JobSpec(JobName("digits"), 2, 4, 3)


def environment(folder: Path, **changed: str) -> Environment:
    (folder / "key").write_text(new_key_pair().secret + "\n")
    (folder / "token").write_text("right\n")
    return Environment(
        {
            "OUTRIDER_SPEC": json.dumps(dataclasses.asdict(SPEC)),
            "OUTRIDER_JOB_DIR": str(folder),
            "OUTRIDER_MASTER_KEY_FILE": str(folder / "key"),
            "OUTRIDER_TOKEN_FILE": str(folder / "token"),
            "OUTRIDER_NODE_SOCKET": str(folder / "node.sock"),
            **changed,
        }
    )


def test_a_spec_comes_through_as_it_was_given(tmp_path: Path) -> None:
    found = settings.read(environment(tmp_path))
    assert (found.spec, found.job, found.token) == (SPEC, "digits", "right")


def test_rules_a_schedule_and_limits_come_through_as_they_were_given(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        SPEC,
        permanent_codes=(2, 3),
        rules=(Rule((13, 14), "replace"), Rule((), "fail", ("A", "True"))),
        limits=(RoleLimits(Role("chief"), 3, None), RoleLimits(Role("ps"), 0, 1 << 30, "Never")),
        scaling="schedule",
        schedule=(Entry("0 8 * * *", 2), Entry("0 20 * * *", 4)),
    )
    for text in (spec_json.document_of(spec), json.dumps(dataclasses.asdict(spec))):
        assert settings.read(environment(tmp_path, OUTRIDER_SPEC=text)).spec == spec


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("OUTRIDER_SPEC", "{", "OUTRIDER_SPEC: must be a JSON object"),
        ("OUTRIDER_SPEC", '{"name": "a"}', "min_members, max_members, replicas: Required value"),
        ("OUTRIDER_SPEC", '{"name": "a", "colour": 1}', "unknown field colour"),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": "2", "max_members": 4, "replicas": 3}',
            "min_members: Invalid value: '2': must be an integer",
        ),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": 5, "max_members": 4, "replicas": 3}',
            "must be at least 1, and each must not be greater than the next",
        ),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": 2, "max_members": 4, "replicas": 3, "schedule": [["0 8 * * *"]]}',
            "schedule[0]: Invalid value: an array: must be an array of ",
        ),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": 2, "max_members": 4, "replicas": 3, "rules": [[13, "fail"]]}',
            "rules[0][0]: Invalid value: 13: must be an array",
        ),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": 2, "max_members": 4, "replicas": 3, "rules": [[[13], "fail", ["A"]]]}',
            "rules[0][2]: Invalid value: an array: must be an array of 2",
        ),
        (
            "OUTRIDER_SPEC",
            '{"name": "a", "min_members": 2, "max_members": 4, "replicas": 3, "permanent_codes": ["2"]}',
            "permanent_codes[0]: Invalid value: '2': must be an integer",
        ),
        *(
            (
                "OUTRIDER_SPEC",
                f'{{"name": "a", "min_members": 2, "max_members": 4, "replicas": 3, "hang_init": {limit}}}',
                "must be seconds greater than 0",
            )
            for limit in ("-1", "0", "NaN", "Infinity")
        ),
        ("OUTRIDER_JOB_DIR", "/nonexistent", "OUTRIDER_JOB_DIR='/nonexistent'"),
        ("OUTRIDER_TOKEN_FILE", "/nonexistent", "OUTRIDER_TOKEN_FILE='/nonexistent'"),
        ("OUTRIDER_LIFELINE_FD", "one", "OUTRIDER_LIFELINE_FD='one'"),
        ("OUTRIDER_PLATFORM", "moon", "OUTRIDER_PLATFORM='moon'"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, variable: str, value: str, sentence: str) -> None:
    with pytest.raises(WrongSetting) as error:
        settings.read(environment(tmp_path, **{variable: value}))
    assert sentence in str(error.value)


def test_a_key_that_is_none_is_named(tmp_path: Path) -> None:
    told = environment(tmp_path)
    (tmp_path / "key").write_text("short")
    with pytest.raises(WrongSetting, match="OUTRIDER_MASTER_KEY_FILE: a CURVE key must be 40 characters"):
        settings.read(told)
