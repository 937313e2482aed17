"""How findings are printed."""

from __future__ import annotations

from outrider.cli.doctor.findings import document, lines, ok, problem, summary, warning

FOUND = [ok("ports", "127.0.0.1 works"), warning("/dev/shm", "64 MiB free", "--shm-size=8g"),
         problem("script", "\x1b[31mno", "correct it")]  # fmt: skip


def test_each_finding_is_a_line_and_what_to_do_a_second_one() -> None:
    printed = [[line.plain for line in lines(each)] for each in FOUND]
    assert printed[0] == ["ok      ports          127.0.0.1 works"]
    assert printed[1] == ["warning /dev/shm       64 MiB free", f"{'':23}→ --shm-size=8g"]
    assert printed[2][0] == "problem script         \ufffd[31mno"


def test_the_summary_and_the_document_count_them() -> None:
    assert summary(FOUND) == "1 problem would keep a job from running; 1 warning"
    assert summary(FOUND[:1]) == "nothing found that would keep a job from running; 0 warnings"
    found = document(FOUND)
    assert (found["problems"], found["warnings"], len(found["findings"])) == (1, 1, 3)
    assert found["findings"][1] == {
        "check": "/dev/shm", "level": "warning", "text": "64 MiB free", "fix": "--shm-size=8g"
    }  # fmt: skip
