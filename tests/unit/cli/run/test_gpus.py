"""GPUs of a command line: what the machine says it has, what the user allows, and who gets which. No GPU is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from outrider.cli.errors import UserError
from outrider.cli.run.command import run
from outrider.cli.run.gpus import NO_MIG, Found, discovered, of_listing
from outrider.cli.run.request import Request
from outrider.cli.run.resolve import request_of

EIGHT = Found(tuple("01234567"))
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-d5cfc6ad-1a4d-3a6a-8b4a-7a6b7ed1c5a0)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The request of so many members on a machine with these GPUs."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    def ask(
        nnodes: int | None, found: Found = EIGHT, visible: str | None = None, *words: str, **flags: int | str
    ) -> Request:
        environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        asked_for = flags if nnodes is None else {"nnodes": nnodes, **flags}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in asked_for.items()]
        given = run.make_context("run", [*options, *(words or ["train.py"])]).params
        return request_of(given["words"], given["after_dashes"], given, environ, lambda: found)

    return ask


def test_what_nvidia_smi_lists_is_read() -> None:
    assert of_listing(LISTING.replace("  MIG", "  ???")) == Found(("0", "1"))
    found = of_listing(LISTING)
    assert found.devices == ("1",)
    assert [each[:12] for each in found.instances] == ["MIG-c6d4f1ef", "MIG-cba663e8"]
    assert of_listing("No devices found.\n") == Found()
    assert (found.count, Found((), found.instances).count, Found().count) == (1, 1, 0)


def test_without_nvidia_smi_the_device_files_are_counted(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert discovered(tmp_path, "no-such-program") == Found(("0", "1"))
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    assert discovered(tmp_path, str(broken)) == Found(("0", "1"))


def test_the_machine_s_gpus_are_shared_out(asked: Any) -> None:
    request = asked(4)
    assert request.gpus == (("0", "1"), ("2", "3"), ("4", "5"), ("6", "7"))
    assert request.about_gpus == ("GPUs: worker-0 has 0,1; worker-1 has 2,3; worker-2 has 4,5; worker-3 has 6,7",)
    assert asked(2, nproc_per_node=2, spares=3).gpus == (("0", "1", "2", "3"), ("4", "5", "6", "7"))


def test_what_the_user_allows_is_shared_out(asked: Any) -> None:
    assert asked(2, visible="5,GPU-ab").gpus == (("5",), ("GPU-ab",))
    assert asked(2, visible="").gpus == asked(2, visible="-1").gpus == ()


def test_a_member_that_is_alone_keeps_what_there_is_as_all_do_without_sharing(asked: Any) -> None:
    for request in (asked(1), asked(1, spares=2), asked(4, share_gpus="off"), asked(4, Found())):
        assert (request.gpus, request.about_gpus) == ((), ())


def test_a_job_with_parameter_servers_shares_out_nothing(asked: Any) -> None:
    assert asked(None, ps=1, workers=2).gpus == ()


def test_mig_instances_are_shared_out_only_where_they_are_named(asked: Any) -> None:
    request = asked(2, of_listing(LISTING))
    assert (request.gpus, request.about_gpus) == ((), (NO_MIG,))
    assert asked(2, of_listing(LISTING), visible="MIG-a,MIG-b").gpus == (("MIG-a",), ("MIG-b",))


def test_members_that_share_gpus_are_warned_of(asked: Any) -> None:
    _, warned = asked(4, Found(("0", "1"))).about_gpus
    assert warned == "4 ranks share 2 GPUs: NCCL refuses two ranks on one GPU"


def test_gpu_counts_those_of_a_member(asked: Any) -> None:
    assert [asked(members, nproc_per_node="gpu").nproc for members in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert asked(2, nproc_per_node="auto").nproc == 4
    assert asked(2, nproc_per_node="gpu", share_gpus="off").nproc == 8
    assert asked(2, nproc_per_node="gpu", visible="0,1").nproc == 1
    assert asked(2, nproc_per_node="gpu").gpus == (("0", "1", "2", "3"), ("4", "5", "6", "7"))
    with pytest.raises(UserError, match="shows no GPU"):
        asked(2, Found(), nproc_per_node="gpu")


def test_a_launcher_inside_means_the_same_by_gpu(asked: Any) -> None:
    words = ("--", "sh", "-c", "torchrun --nproc-per-node gpu train.py")
    assert len(asked(2, EIGHT, None, *words).gpus[0]) == 4
    asked(2, EIGHT, None, *words, nproc_per_node=4)
    with pytest.raises(UserError, match="--nproc-per-node 8 was given to outrider"):
        asked(2, EIGHT, None, *words, nproc_per_node=8)


def test_sharing_is_on_or_off() -> None:
    assert run.make_context("run", ["train.py"]).params["share_gpus"] == "on"
    assert run.make_context("run", ["--share_gpus=off", "train.py"]).params["share_gpus"] == "off"
    with pytest.raises(click.BadParameter, match="'maybe' is not one of 'on', 'off'"):
        run.make_context("run", ["--share-gpus", "maybe", "train.py"])
