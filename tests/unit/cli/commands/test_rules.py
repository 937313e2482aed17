"""`outrider rules` and `--rules`: the same rules as an ElasticJob's, read from a file, tried on a log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.errors import UserError
from outrider.cli.main import main
from outrider.cli.rule_file import rules_of
from outrider.master.core.spec import Rule

RULES = """
rules:
  - {logPattern: "step (?P<step>\\\\d+) NaN", action: fail, dryRun: true}
  - {logPattern: uncorrectable ECC, action: replaceNode}
  - {logPattern: timed out, action: restart, times: 2, within: 1h}
  - {logPattern: "(a+)+$", action: fail}
  - {exitCodes: [13], action: replace}
"""
LOG = f"begin\nstep 3 NaN\n{'a' * 60}b\n10%\r20%\rCUDA error: uncorrectable ECC\n" + 3 * "NCCL timed out\n"


def tried(folder: Path, rules: str, log: str | bytes) -> Result:
    (folder / "job.yaml").write_text(rules)
    return CliRunner().invoke(main, ["rules", "-f", str(folder / "job.yaml"), "--log", "-"], input=log)


def test_the_output_shows_which_lines_match_which_rule_and_what_it_would_do(tmp_path: Path) -> None:
    result = tried(tmp_path, RULES, LOG)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "line 2: step 3 NaN",
        '  rule 1 of recovery.rules requires fail for logPattern "step (?P<step>\\d+) NaN". Nothing is done, '
        "because dryRun is set; remove it to apply the rule.",
        "line 4: CUDA error: uncorrectable ECC",
        '  rule 2 of recovery.rules requires replaceNode for logPattern "uncorrectable ECC".',
        "line 5: NCCL timed out",
        "  It is counted; the rule does nothing yet.",
        "line 6: NCCL timed out",
        '  rule 3 of recovery.rules requires restart for logPattern "timed out", met 2 times within 3600 s.',
        "line 7: NCCL timed out",
        "  It is counted; the rule does nothing yet.",
        'rule 1: 1 line "step (?P<step>\\d+) NaN"',
        'rule 2: 1 line "uncorrectable ECC"',
        'rule 3: 3 lines "timed out"',
        'rule 4: 0 lines "(a+)+$"; not searched after line 3: it took more than 50 ms of CPU for one line',
        "rule 5: has no logPattern",
    ]


def test_some_lines_of_a_pattern_that_matches_everywhere_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    result = tried(tmp_path, "[{logPattern: x, action: fail}]", b"x\xff\n" * 5000)
    assert result.output.count("line ") == 20
    assert 'rule 1: 5,000 lines "x"' in result.output


@pytest.mark.parametrize(
    "document",
    [
        [{"exitCodes": [3], "action": "fail"}],
        {"rules": [{"exitCodes": [3], "action": "fail"}]},
        {"recovery": {"rules": [{"exitCodes": [3], "action": "fail"}]}},
        {
            "kind": "ElasticJob",
            "spec": {"replicaSpecs": {}, "recovery": {"rules": [{"exitCodes": [3], "action": "fail"}]}},
        },
    ],
)
def test_rules_are_found_in_an_elasticjob_and_in_parts_of_one(tmp_path: Path, document: object) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(document))
    assert rules_of(path) == (Rule((3,), "fail"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [", "must be YAML or JSON: while parsing"),
        ("", "must have rules, as `rules: [{logPattern: ..., action: replace}]`"),
        ("kind: ElasticJob\nspec: {replicaSpecs: {}}", "must have rules"),
        ("rules: [fail]", "must have rules"),
        ("rules: []", "must have rules"),
        ("rules: [{exitCodes: [3], action: fail}]\n---\nrules: [{exitCodes: [4], action: fail}]",
         "must have one YAML document, but has 2"),
        ("rules: [{logPattern: '(', action: fail}]",
         'recovery.rules[0].logPattern: Invalid value: "(": must be a regular expression: missing ), unterminated'),
        ("rules: [{logPattern: x, action: reboot}]",
         'recovery.rules[0].action: Unsupported value: "reboot": supported values: "fail", "restart"'),
    ],
)  # fmt: skip
def test_a_file_without_valid_rules_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as wrong:
        rules_of(path)
    assert wrong.value.message.startswith(f"{path}: {said}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["run", "--rules", str(tmp_path / "none.yaml"), "train.py"])
    assert result.exit_code == 2
    assert "none.yaml: must be YAML or JSON: No such file or directory" in result.output


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    log = tmp_path / "none.log"
    result = CliRunner().invoke(main, ["rules", "-f", str(tmp_path / "rules.yaml"), "--log", str(log)])
    assert result.exit_code == 2
    assert result.output == f"outrider: --log {log}: must be readable: No such file or directory\n"
