"""Finds the GPUs that ranks may use, without torch and CUDA, and divides them among members.

It runs nvidia-smi; without it, it counts the driver's device files. Devices are numbered as CUDA numbers them. A GPU in
MIG mode can be used only by its instances, one per process and only by their ids, so the user must name these in
CUDA_VISIBLE_DEVICES. torch and CUDA belong to the trainer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.master.core.placement.gpus import VISIBLE, Share, a_member, listed, sentence, shares, warning
from outrider.master.core.spec import WORKER

PATIENCE = 20.0
"""Seconds to wait for nvidia-smi; without persistence mode it loads the driver first."""
NO_MIG = "GPUs: not divided among members, because there are MIG instances; list these in CUDA_VISIBLE_DEVICES"
LINE = re.compile(r"GPU (\d+): .*|\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs of the machine."""

    devices: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    """The MIG instances; their GPUs are not among the devices."""

    @property
    def count(self) -> int:
        """The number of GPUs that one process sees, which is at most one if they are MIG instances."""
        return len(self.devices) or min(1, len(self.instances))


Discovery = Callable[[], Found]


def of_listing(text: str) -> Found:
    """The GPUs in the output of `nvidia-smi -L`."""
    devices: dict[str, None] = {}
    instances, last = [], ""
    for found in map(LINE.fullmatch, text.splitlines()):
        if found is not None and found[1]:
            last = found[1]
            devices[last] = None
        elif found is not None:
            instances.append(found[2])
            devices.pop(last, None)
    return Found(tuple(devices), tuple(instances))


def discovered(devices: Path = Path("/dev"), program: str = "nvidia-smi") -> Found:
    """The GPUs of this machine, by nvidia-smi or else by the driver's device files."""
    found = shutil.which(program)
    if found is not None:
        try:
            done = subprocess.run([found, "-L"], capture_output=True, text=True, timeout=PATIENCE, check=True)
            return of_listing(done.stdout)
        except (OSError, subprocess.SubprocessError):  # the driver does not answer: count its device files instead
            pass
    count = sum(1 for name in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", name.name))
    return Found(tuple(map(str, range(count))))


@dataclass(frozen=True, slots=True)
class Dividing:
    """The division of the machine's GPUs among members; with 1 member nothing is divided. The machine is queried only
    when the result matters."""

    environ: Mapping[str, str]
    discover: Discovery
    members: int

    def a_member(self) -> int:
        """The number of GPUs per member, for `--nproc-per-node gpu`."""
        return a_member(visible(self.environ, self.discover).count, self.members)

    def shares(self, nproc: int) -> tuple[tuple[Share, ...], tuple[str, ...]]:
        """The GPUs of each rank index, and messages about them."""
        if self.members < 2:
            return (), ()
        found = visible(self.environ, self.discover)
        if found.instances:
            return (), (NO_MIG,)
        given = shares(found.devices, self.members, nproc)
        messages = (sentence(given, found.devices, WORKER), warning(given, nproc)) if given else ()
        return given, tuple(filter(None, messages))


def visible(environ: Mapping[str, str], discover: Discovery) -> Found:
    """The GPUs in CUDA_VISIBLE_DEVICES, which may list MIG instances; without it, all GPUs of the machine."""
    return Found(listed(environ[VISIBLE])) if VISIBLE in environ else discover()
