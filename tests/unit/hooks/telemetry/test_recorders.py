"""The reported collectives if torch has two Flight Recorders: gloo's and NCCL's own."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import pytest

from training_hooks.telemetry import flight_recorder

SECOND = 10**9
NOW = 100 * SECOND


def entry(seq: int, op: str, *, at: int, over: bool = True, **other: Any) -> dict[str, Any]:
    found = {"record_id": seq, "collective_seq_id": seq, "profiling_name": op, "process_group": ("0", "default_pg"),
             "time_created_ns": at * SECOND, "retired": over, "state": "completed" if over else "scheduled",
             "is_p2p": False, "input_sizes": [[8]], "input_dtypes": ["Float"]}  # fmt: skip
    return found | other


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As of torch 2.11 for CUDA 13, seen on an H100: each recorder has what its own backend did."""
    native: Any = types.ModuleType("torch._C._distributed_c10d")

    def dumping(entries: list[dict[str, Any]]) -> Any:
        def dump(*, includeCollectives: bool, includeStackTraces: bool, onlyActive: bool) -> bytes:
            ranks = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
            return pickle.dumps({"entries": entries, "pg_config": ranks})

        return dump

    native.gloo, native.nccl = [], []
    native._dump_fr_trace, native._dump_nccl_trace = dumping(native.gloo), dumping(native.nccl)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", native)
    return native


def reported() -> list[tuple[object, object, object]]:
    entries, ranks = flight_recorder.record()
    return [(about["id"], about["seq"], about["state"]) for about in flight_recorder.by_group(entries, ranks, NOW)]


def test_a_rank_that_waits_in_nccl_reports_it(torch: Any) -> None:
    torch.nccl += [entry(1, "nccl:all_reduce", at=10), entry(2, "nccl:all_reduce", at=20, over=False)]
    assert reported() == [("0 nccl", 2, "scheduled")]


def test_backends_of_one_group_count_by_themselves(torch: Any) -> None:
    torch.gloo += [entry(1, "gloo:barrier", at=30)]
    torch.nccl += [entry(7, "nccl:all_reduce", at=20, over=False)]
    assert reported() == [("0 nccl", 7, "scheduled"), ("0 gloo", 1, "completed")]
    assert [each["profiling_name"] for each in flight_recorder.record()[0]] == ["nccl:all_reduce", "gloo:barrier"]


def test_entries_after_a_finished_one_are_finished(torch: Any) -> None:
    """The parts of a coalesced collective are recorded without an event, and never marked as finished."""
    torch.nccl += [entry(1, "nccl:_all_gather_base", at=10, over=False), entry(1, "nccl:coalesced", at=11)]
    assert reported() == [("0 nccl", 1, "completed")]
    torch.nccl += [entry(2, "nccl:_all_gather_base", at=12, over=False)]
    assert reported() == [("0 nccl", 2, "scheduled")]


def test_gloo_s_may_end_in_any_order(torch: Any) -> None:
    torch.gloo += [entry(1, "gloo:all_reduce", at=10, over=False), entry(2, "gloo:all_reduce", at=11)]
    assert reported() == [("0 gloo", 1, "scheduled")]


def test_stragglers_are_not_measured_by_nccl_s(torch: Any) -> None:
    """Seen on an H100: of two members the waiting one was blamed."""
    torch.nccl += [entry(1, "nccl:all_reduce", at=10)]
    assert flight_recorder._without_stacks() == []


def test_a_torch_without_a_recorder_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", types.ModuleType("native"))
    assert flight_recorder.record() == ([], {})
