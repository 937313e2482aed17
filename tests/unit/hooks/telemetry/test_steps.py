"""What counts as a step, and what the progress page says of it: the hook takes any object, so mostly without torch."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_hooks.abi import progress_page, rank_files
from training_hooks.rank import worker
from training_hooks.telemetry import step_counter


class Optimizer:
    def __init__(self) -> None:
        self._optimizer_step_post_hooks: dict[int, Any] = {}


def reading(watched: Any) -> Any:
    return progress_page.read(rank_files.page_path(watched.volume, 0), watched.pid)


def test_only_the_optimizer_called_first_counts(watched: Any) -> None:
    count, first, second = step_counter.hook(watched), Optimizer(), Optimizer()
    for _ in range(5):
        count(first, (), {})
        count(second, (), {})
    assert (reading(watched).step, reading(watched).phase) == (5, progress_page.STEP)


def test_the_next_one_called_takes_the_place_of_one_that_is_gone(watched: Any) -> None:
    count, first, second = step_counter.hook(watched), Optimizer(), Optimizer()
    count(first, (), {})
    count(second, (), {})
    del first
    count(second, (), {})
    count(second, (), {})
    assert reading(watched).step == 3


def test_an_optimizer_that_torch_gave_no_hooks_of_its_own_counts_as_any(watched: Any) -> None:
    count, first, second = step_counter.hook(watched), Optimizer(), Optimizer()
    del first._optimizer_step_post_hooks, second._optimizer_step_post_hooks
    for _ in range(5):
        count(first, (), {})
        count(second, (), {})
    assert reading(watched).step == 5


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
def test_copies_of_an_optimizer_are_others_and_the_hook_is_in_none_of_them(watched: Any) -> None:
    import torch
    from torch.optim import optimizer as optimizers

    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(4))], lr=0.1)
    handle = optimizers.register_optimizer_step_post_hook(step_counter.hook(watched))
    try:
        optimizer.step()
        others = [copy.copy(optimizer), copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
        for each in (optimizer, *others):
            each.step()
            assert not each._optimizer_step_post_hooks  # type: ignore[attr-defined]
        assert reading(watched).step == 2
        others[1].zero_grad()
        del optimizer, each, others[0]
        gc.collect()
        others[0].step()
        assert reading(watched).step == 3, "the first is gone, so it takes its place"
    finally:
        handle.remove()


def test_others_that_have_long_been_called_alone_take_over(watched: Any) -> None:
    count, first, second = step_counter.hook(watched), Optimizer(), Optimizer()
    count(first, (), {})
    for _ in range(3 * step_counter.OTHERS_BEFORE_CHANGE):
        count(second, (), {})
    assert reading(watched).step == 1, "not within the first seconds"
    assert first is not None


def test_the_moments_of_the_last_two_steps_are_kept(watched: Any) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    count(optimizer, (), {})
    first = watched.page.words[progress_page.LAST]
    count(optimizer, (), {})
    assert watched.page.words[progress_page.BEFORE] == first
    assert watched.page.words[progress_page.LAST] > first
    assert watched.page.words[progress_page.SEQUENCE] % 2 == 0


def test_the_first_step_after_an_evaluation_is_training_again(watched: Any) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    count(optimizer, (), {})
    watched.evaluates()
    assert reading(watched).phase == progress_page.EVAL
    count(optimizer, (), {})
    assert (reading(watched).step, reading(watched).phase) == (2, progress_page.STEP)


def test_a_save_is_shown_as_long_as_it_lasts_and_steps_beside_it_count(watched: Any) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    watched.begin_save()
    count(optimizer, (), {})
    assert (reading(watched).step, reading(watched).phase) == (1, progress_page.CHECKPOINT)
    watched.end_save(True)
    assert (reading(watched).phase, reading(watched).saves) == (progress_page.STEP, 1)
    count(optimizer, (), {})
    assert (reading(watched).step, reading(watched).phase) == (2, progress_page.STEP)


def test_a_step_that_only_makes_room_for_an_optimizer_s_state_is_none_and_the_checkpoint_counts(watched: Any) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    module = SimpleNamespace(_init_optim_state=lambda optim: count(optim, (), {}))
    step_counter.leave_out(lambda: watched, module)
    module._init_optim_state(optimizer)
    assert (reading(watched).step, reading(watched).phase) == (0, progress_page.INIT)
    watched.known.saved("/x/a.pt", 40)
    watched.loaded("/x/a.pt")
    count(optimizer, (), {})
    assert (reading(watched).base, reading(watched).step, reading(watched).phase) == (40, 41, progress_page.STEP)


def test_a_loaded_checkpoint_gives_the_step_to_go_on_from(watched: Any) -> None:
    count, optimizer = step_counter.hook(watched), Optimizer()
    watched.known.saved("/x/a.pt", 40)
    watched.loaded("/x/a.pt")
    count(optimizer, (), {})
    watched.loaded("/x/a.pt")
    assert (reading(watched).base, reading(watched).step) == (40, 41)


def test_another_user_may_read_the_page_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        made = worker.Worker(str(tmp_path), 0, (1, 1))
    finally:
        os.umask(before)
    made.channel.close()
    path = Path(rank_files.page_path(made.volume, 0))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o755, 0o644]


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
@pytest.mark.parametrize(
    ("how", "samples"),
    [({"batch_size": 4}, 4), ({"batch_size": None}, 1), ({"batch_size": 3, "num_workers": 1}, 3),
     ({"batch_sampler": [[0, 1], [2]]}, 0)],
    ids=["a batch", "single samples", "with a worker", "a list of batches"],
)  # fmt: skip
def test_how_many_samples_a_batch_of_a_data_loader_has(how: dict[str, Any], samples: int) -> None:
    from torch.utils.data import DataLoader

    assert step_counter.samples_of(iter(DataLoader(range(8), **how))) == samples  # type: ignore[arg-type]
