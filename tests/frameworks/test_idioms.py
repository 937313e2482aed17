"""Public ways of saving and loading, each under a killed rank, a lost member and another size: what is told of it is
what the ranks' own traces say.

The libraries come with the extra `frameworks`; an idiom whose library is not installed is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.frameworks.story import HOLDS, KILL, LOSS, RESIZE, STEPS, Story

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]
LOADED, OVER, UNKNOWN = "loaded", "started over", "unknown"
EVERY = 5
TOLERANCE = 10.0
"""Seconds by which what is told may differ from the traces, or else a quarter: a trace is written behind the step, and
the master learns of a step by a message that a busy machine delays (4 s were seen at a load of 10)."""


@dataclass(frozen=True, slots=True)
class Idiom:
    script: str
    library: str = "torch"
    arguments: str = ""
    goes_on_from: str = LOADED
    waits_for_saves: bool = True
    """Another size waits for the next save, which the hooks see."""


IDIOMS = {
    "nanoGPT, init_from=resume": Idiom("nanogpt", arguments="--init_from=resume"),
    "nanoGPT, init_from=scratch": Idiom("nanogpt", arguments="--init_from=scratch", goes_on_from=OVER),
    "Lightning": Idiom("lightning_last", "lightning"),
    "accelerate": Idiom("accelerate_state", "accelerate", "--resume_from_checkpoint latest"),
    "HF Trainer": Idiom("hf_trainer", "transformers"),
    "FSDP2 with DCP": Idiom("fsdp2_dcp"),
    "DeepSpeed ZeRO-1": Idiom("deepspeed_zero1", "deepspeed"),
    "latest file": Idiom("latest_file"),
    "symlink": Idiom("symlink"),
    "rotation": Idiom("rotation"),
    "saver process": Idiom("saver_process", goes_on_from=UNKNOWN, waits_for_saves=False),
    "saver program": Idiom("saver_program", goes_on_from=UNKNOWN, waits_for_saves=False),
    "file per rank": Idiom("rank_shards"),
    "safetensors": Idiom("safetensors_files", "safetensors"),
    "pickle": Idiom("pickled", goes_on_from=UNKNOWN, waits_for_saves=False),
    "numpy": Idiom("numpy_savez", "numpy", goes_on_from=UNKNOWN, waits_for_saves=False),
}
FAULTS = pytest.mark.parametrize("fault", [KILL, LOSS])
CHAPTERS = pytest.mark.parametrize("chapter", [KILL, LOSS, RESIZE])
FIRST = {LOADED: "Recovered", OVER: "StartedOver", UNKNOWN: "ResumeUnknown"}
"""What is told first of a generation after a fault."""


@pytest.fixture(scope="module", params=IDIOMS)
def idiom(request: pytest.FixtureRequest) -> Idiom:
    found = IDIOMS[request.param]
    if importlib.util.find_spec(found.library) is None:
        pytest.skip(f"{found.library} is not installed")
    return found


@pytest.fixture(scope="module")
def story(idiom: Idiom) -> Iterator[Story]:
    """Played once for all that is asked of it; a chapter that did not come fails what asks for it."""
    job = Story(idiom.script, idiom.arguments, waits_for_saves=idiom.waits_for_saves)
    try:
        try:
            job.play()
        except (AssertionError, OSError) as error:
            job.failure = error
        yield job
    finally:
        job.close()


def test_it_comes_to_its_end_in_spite_of_them(story: Story) -> None:
    assert story.failure is None, story.failure
    assert (story.code, story.ended_at()) == (0, {0: STEPS}), story.log()


def test_the_step_of_the_status_is_the_script_s_own(idiom: Idiom, story: Story) -> None:
    """Where nobody knows where it goes on, it is how many were made, and said to be an estimate: the ones that were
    made again are among them."""
    assert story.failure is None, story.failure
    most = STEPS + (story.repeated() if idiom.goes_on_from == UNKNOWN else 0)
    status = story.status()
    assert STEPS <= status["step"] <= most
    assert status["step_estimated"] == (idiom.goes_on_from == UNKNOWN)


@CHAPTERS
def test_the_script_goes_on_from_its_last_save(idiom: Idiom, story: Story, chapter: str) -> None:
    saved = HOLDS[chapter] // EVERY * EVERY + (EVERY if chapter == RESIZE and idiom.waits_for_saves else 0)
    assert story.chapter(chapter).first == 1 + (0 if idiom.goes_on_from == OVER else saved)


@CHAPTERS
def test_it_is_told_what_a_generation_goes_on_from(idiom: Idiom, story: Story, chapter: str) -> None:
    found = story.chapter(chapter)
    assert found.goes_on_from == idiom.goes_on_from
    first = FIRST[idiom.goes_on_from]
    expected = [] if chapter == RESIZE and first == "Recovered" else [first]
    assert found.told[:1] == expected


@CHAPTERS
def test_as_many_steps_are_told_to_be_repeated_as_the_trace_has(idiom: Idiom, story: Story, chapter: str) -> None:
    """Where nobody knows where it goes on, none are told."""
    found = story.chapter(chapter)
    repeated = 0 if idiom.goes_on_from == UNKNOWN else found.repeated
    under_way = 1 if chapter == RESIZE and idiom.waits_for_saves else 0  # ended behind a step, before it was noted
    assert repeated <= found.told_repeated <= repeated + under_way


@FAULTS
def test_as_many_seconds_are_told_to_be_lost_as_the_trace_has(idiom: Idiom, story: Story, fault: str) -> None:
    """Where nobody knows which steps are repeated ones, up to the first step of the new generation."""
    found = story.chapter(fault)
    lost = found.seconds_to_first if idiom.goes_on_from == UNKNOWN else found.seconds_lost
    assert found.told_seconds_lost == pytest.approx(lost, rel=0.25, abs=TOLERANCE)


def test_no_fault_s_cost_is_left_open(story: Story) -> None:
    assert story.failure is None, story.failure
    assert [each for each in story.status()["faults"] if each["seconds_lost"] is None] == []
