"""Several files of one checkpoint: when and how they are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.sidecar.shell.progress_pages import read_page
from tests.integration.hooks.agent import wait_until
from tests.unit.hooks.telemetry.test_steps import Optimizer, reading
from training_hooks.abi import progress_page
from training_hooks.process import worker_channel
from training_hooks.rank import save_group
from training_hooks.telemetry import step_counter


def save(watched: Any, path: str) -> None:
    """As `saves` does."""
    watched.begin_save()
    watched.end_save(True, alone=False)
    watched.saved(path)


@pytest.fixture
def up(watched: Any) -> Iterator[worker_channel.Channel]:
    made = worker_channel.Channel(watched.volume, "up")
    yield made
    made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint ends by time alone."""
    monkeypatch.setattr(save_group, "PAUSE", 600.0)


def reported(up: worker_channel.Channel) -> list[str]:
    found = []
    while (message := up.hear()) is not None:
        found.append(message["saved"])
    return found


@pytest.mark.usefixtures("patient")
def test_files_saved_one_after_another_are_reported_at_the_next_step_and_a_stop_waits_for_all(
    watched: Any, up: worker_channel.Channel
) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    count(optimizer, (), {})
    save(watched, "/x/model.pt")
    assert (reported(up), reading(watched).phase) == ([], progress_page.CHECKPOINT)
    save(watched, "/x/optimizer.pt")
    assert (reported(up), reading(watched).phase) == ([], progress_page.CHECKPOINT)
    count(optimizer, (), {})
    assert (reported(up), reading(watched).phase) == (["/x/model.pt", "/x/optimizer.pt"], progress_page.STEP)
    assert (reading(watched).saves, reading(watched).step) == (2, 2)


@pytest.mark.usefixtures("patient")
def test_after_a_save_the_page_shows_the_phase_before_it(watched: Any, up: worker_channel.Channel) -> None:
    """Also while its hooks cannot report the end of the save: the GIL is held, or the process is stopped."""

    def seen() -> set[str]:
        found = read_page(Path(watched.volume) / "progress" / "0")
        assert found is not None
        return {found.phase, reading(watched).name, watched.phase_name()}

    save(watched, "/x/model.pt")
    assert (seen(), reading(watched).phase) == ({"init"}, progress_page.CHECKPOINT)
    step_counter.hook(watched)(Optimizer(), (), {})
    watched.begin_save()
    assert seen() == {"checkpoint"}
    watched.end_save(True, alone=False)
    assert (seen(), reading(watched).phase) == ({"step"}, progress_page.CHECKPOINT)
    watched.begin_save()
    assert seen() == {"checkpoint"}, "another file of the same checkpoint"
    watched.end_save(False)
    assert seen() == {"step"}
    step_counter.hook(watched)(Optimizer(), (), {})
    watched.begin_save()
    assert seen() == {"checkpoint"}, "the next one"


def test_a_last_save_is_reported_after_a_pause(watched: Any, up: worker_channel.Channel) -> None:
    save(watched, "/x/model.pt")
    found: list[str] = []
    wait_until(lambda: found.extend(reported(up)) or found, "the save")
    assert found == ["/x/model.pt"]
    wait_until(lambda: reading(watched).phase == progress_page.INIT, "the phase from before")


def test_a_path_that_is_saved_again_ends_the_checkpoint_before(watched: Any, up: worker_channel.Channel) -> None:
    for _ in range(2):
        save(watched, "/x/model.pt")
        save(watched, "/x/optimizer.pt")
    assert reported(up) == ["/x/model.pt", "/x/optimizer.pt"]


@pytest.mark.usefixtures("patient")
def test_a_folder_that_one_call_fills_is_reported_as_one_unless_the_call_failed(
    watched: Any, up: worker_channel.Channel
) -> None:
    save(watched, "/x/before.pt")
    for folder, is_whole in (("/x/step-3", True), ("/x/step-6", False)):
        already = len(watched.together.held)
        watched.begin_save()
        save(watched, folder + "/model.safetensors")
        save(watched, folder + "/optimizer.pt")
        watched.together.as_one(already, is_whole)
        watched.end_save(is_whole, alone=False)
    watched.together.passed()
    assert reported(up) == ["/x/before.pt", "/x/step-3"]


def test_a_file_of_a_reported_folder_gives_the_step_to_resume(watched: Any) -> None:
    watched.known.saved("/x/step-3", 3)
    watched.loaded("/x/step-3/optimizer.pt")
    assert reading(watched).base == 3
