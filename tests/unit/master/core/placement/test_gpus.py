"""Tables of the GPUs that each member gets."""

from __future__ import annotations

import pytest

from outrider.master.core.placement import gpus

EIGHT = tuple("01234567")
MIG = tuple(f"MIG-{n}0ae6b2c-9cc1-5b4e-8c5b-2c5d" for n in range(3))


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("0,1,2", ("0", "1", "2")),
        (" 3, 1 ", ("3", "1")),
        ("GPU-8932f937-d72c,GPU-1", ("GPU-8932f937-d72c", "GPU-1")),
        (",".join(MIG), MIG),
        ("MIG-GPU-8932f937/1/0", ("MIG-GPU-8932f937/1/0",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", ("0",)),
        ("0,,2", ("0",)),
        ("all", ()),
        ("1,0,1", ()),
    ],
)
def test_the_list_is_read_as_cuda_reads_it(value: str, devices: tuple[str, ...]) -> None:
    assert gpus.listed(value) == devices


@pytest.mark.parametrize(
    ("devices", "members", "nproc", "given"),
    [
        (EIGHT, 4, 1, ("01", "23", "45", "67")),
        (EIGHT, 4, 2, ("01", "23", "45", "67")),
        (EIGHT, 3, 2, ("01", "23", "45")),
        (EIGHT, 8, 1, tuple("01234567")),
        (EIGHT[:4], 3, 1, tuple("012")),
        (EIGHT[:4], 2, 3, ("012", "301")),  # more ranks than GPUs: every LOCAL_RANK has one
        (EIGHT[:2], 4, 1, tuple("0101")),
        (EIGHT[:2], 2, 4, ("01", "01")),
        (EIGHT[:1], 2, 1, ("0", "0")),
        (EIGHT, 1, 4, ()),
        ((), 4, 1, ()),
    ],
)
def test_members_have_equal_shares(devices: tuple[str, ...], members: int, nproc: int, given: tuple[str, ...]) -> None:
    assert gpus.shares(devices, members, nproc) == tuple(map(tuple, given))


def test_devices_are_assigned_by_the_names_that_the_user_gave() -> None:
    assert gpus.shares(("GPU-a", "GPU-b"), 2, 1) == (("GPU-a",), ("GPU-b",))
    assert gpus.shares(MIG, 3, 1) == tuple((each,) for each in MIG)


@pytest.mark.parametrize("members", range(2, 12))
@pytest.mark.parametrize("nproc", range(1, 6))
def test_no_rank_shares_a_gpu_if_there_are_enough(members: int, nproc: int) -> None:
    given = gpus.shares(tuple(map(str, range(24))), members, nproc)
    used = [device for share in given for device in share]
    assert len(given) == members
    assert all(len(share) >= nproc and len(set(share)) == len(share) for share in given)
    assert (len(set(used)) == len(used)) == (members * nproc <= 24) == (gpus.warning(given, nproc) == "")


def test_a_node_s_gpus_are_those_of_a_member() -> None:
    assert [gpus.a_member(8, members) for members in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert gpus.a_member(0, 2) == 0


def test_the_shares_of_all_members_are_one_sentence() -> None:
    four = EIGHT[:4]
    assert gpus.sentence(gpus.shares(four, 2, 2), four, "worker") == "GPUs: worker-0 has 0,1; worker-1 has 2,3"
    assert gpus.sentence(gpus.shares(EIGHT, 3, 2), EIGHT, "worker").endswith("; worker-2 has 4,5; not used: 6,7")
    many = gpus.sentence(gpus.shares(four, 40, 1), four, "worker")
    assert many.endswith("worker-15 has 3; and so on, 40 members")


def test_ranks_that_share_a_gpu_are_reported() -> None:
    assert gpus.warning(gpus.shares(EIGHT[:2], 4, 1), 1) == "4 ranks share 2 GPUs: NCCL refuses two ranks on one GPU"
    assert gpus.warning(gpus.shares(EIGHT[:1], 2, 1), 1).startswith("2 ranks share 1 GPU: ")
