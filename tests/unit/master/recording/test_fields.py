"""Every text of the core's states, events, actions and messages has a kind: a new one needs a decision."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from outrider.master.core.events import Event
from outrider.master.core.job_kinds import Job
from outrider.master.recording import codec, fields, types
from outrider.master.recording.scrubbing import Scrubber
from tests.unit.master.recording import filled

TOKEN = "hf_Zq81PLANTEDsecret"


def planted(kind: str) -> str:
    """A secret as it may come into a field of this kind."""
    return {
        fields.NAME: f"https://user:{TOKEN}@registry.example/x?key={TOKEN}",
        fields.NUMBER: f"{TOKEN} 12",
        fields.FRAME: f"/home/{TOKEN}/train.py:33 main",
        fields.TYPE: f"Error {TOKEN}",
        fields.SIGNATURE: f"ValueError|the token {TOKEN} is wrong|/home/{TOKEN}/train.py:33 main",
        fields.TRACEBACK: f'Traceback (most recent call last):\n  File "/{TOKEN}/a.py", line 3, in main\n'
        f'    login("{TOKEN}")\nmylib.LoginError: {TOKEN} is wrong\nand {TOKEN}',
        fields.ANSWER: json.dumps({"ranks": [{"stack": f'  File "/{TOKEN}/a.py", line 3 in main', "phase": TOKEN}],
                                   TOKEN: 1, "error": f"no {TOKEN}"}),
        fields.REASON: f"Evicted: the volume {TOKEN} is full",
    }.get(kind, f"running with {TOKEN}")  # fmt: skip


def test_every_field_that_may_hold_a_text_has_a_kind() -> None:
    missing = sorted(set(filled.texts()) - set(fields.KINDS))
    assert not missing, f"may these be in a bundle? Give each a kind in outrider/master/recording/fields.py: {missing}"


def test_no_kind_is_given_to_a_field_that_does_not_exist() -> None:
    assert sorted(set(fields.KINDS) - set(filled.texts())) == []


@pytest.mark.parametrize("name", sorted(types.known()))
def test_a_secret_in_any_text_of_any_type_is_not_recorded(name: str) -> None:
    value = filled.of(types.known()[name], planted)
    written = json.dumps(codec.encoded(type(value), value, Scrubber()))
    assert "PLANTED" not in written


def test_states_with_a_secret_in_every_text_are_recorded_without_them_and_read_again() -> None:
    for kind in (*get_args(Job), *get_args(Event)):
        value = filled.of(kind, planted)
        written = json.dumps(codec.encoded(kind, value, Scrubber()))
        assert "PLANTED" not in written
        assert type(codec.decoded(kind, json.loads(written))) is kind
