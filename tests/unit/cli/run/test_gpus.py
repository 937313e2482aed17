"""GPUs of a command line: which ones the machine has, the user allows, and each member gets. No GPU is needed."""

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
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The request for this number of members on a machine with these GPUs."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    def ask(
        nnodes: int | None, found: Found = EIGHT, visible: str | None = None, *words: str, **flags: int | str
    ) -> Request:
        environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        given_flags = flags if nnodes is None else {"nnodes": nnodes, **flags}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given_flags.items()]
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


def test_the_machine_s_gpus_are_divided_among_members(requested: Any) -> None:
    request = requested(4)
    assert request.gpus == (("0", "1"), ("2", "3"), ("4", "5"), ("6", "7"))
    assert request.about_gpus == ("GPUs: worker-0 has 0,1; worker-1 has 2,3; worker-2 has 4,5; worker-3 has 6,7",)
    assert requested(2, nproc_per_node=2, spares=3).gpus == (("0", "1", "2", "3"), ("4", "5", "6", "7"))


def test_the_gpus_that_the_user_allows_are_divided_among_members(requested: Any) -> None:
    assert requested(2, visible="5,GPU-ab").gpus == (("5",), ("GPU-ab",))
    assert requested(2, visible="").gpus == requested(2, visible="-1").gpus == ()


def test_a_single_member_and_all_members_without_sharing_see_every_gpu(requested: Any) -> None:
    for request in (requested(1), requested(1, spares=2), requested(4, share_gpus="off"), requested(4, Found())):
        assert (request.gpus, request.about_gpus) == ((), ())


def test_a_job_with_parameter_servers_divides_no_gpus(requested: Any) -> None:
    assert requested(None, ps=1, workers=2).gpus == ()


def test_mig_instances_are_divided_only_if_the_user_names_them(requested: Any) -> None:
    request = requested(2, of_listing(LISTING))
    assert (request.gpus, request.about_gpus) == ((), (NO_MIG,))
    assert requested(2, of_listing(LISTING), visible="MIG-a,MIG-b").gpus == (("MIG-a",), ("MIG-b",))


def test_members_that_share_gpus_cause_a_warning(requested: Any) -> None:
    _, warned = requested(4, Found(("0", "1"))).about_gpus
    assert warned == "4 ranks share 2 GPUs: NCCL refuses two ranks on one GPU"


def test_the_word_gpu_counts_the_gpus_of_a_member(requested: Any) -> None:
    assert [requested(members, nproc_per_node="gpu").nproc for members in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert requested(2, nproc_per_node="auto").nproc == 4
    assert requested(2, nproc_per_node="gpu", share_gpus="off").nproc == 8
    assert requested(2, nproc_per_node="gpu", visible="0,1").nproc == 1
    assert requested(2, nproc_per_node="gpu").gpus == (("0", "1", "2", "3"), ("4", "5", "6", "7"))
    with pytest.raises(UserError, match="shows no GPU"):
        requested(2, Found(), nproc_per_node="gpu")


def test_the_word_gpu_has_the_same_meaning_for_an_inner_launcher(requested: Any) -> None:
    words = ("--", "sh", "-c", "torchrun --nproc-per-node gpu train.py")
    assert len(requested(2, EIGHT, None, *words).gpus[0]) == 4
    requested(2, EIGHT, None, *words, nproc_per_node=4)
    with pytest.raises(UserError, match="--nproc-per-node 8: must equal --nproc-per-node 4 of sh"):
        requested(2, EIGHT, None, *words, nproc_per_node=8)


def test_share_gpus_is_on_or_off() -> None:
    assert run.make_context("run", ["train.py"]).params["share_gpus"] == "on"
    assert run.make_context("run", ["--share_gpus=off", "train.py"]).params["share_gpus"] == "off"
    with pytest.raises(click.UsageError, match="--share-gpus maybe: must be one of on, off"):
        run.make_context("run", ["--share-gpus", "maybe", "train.py"])
