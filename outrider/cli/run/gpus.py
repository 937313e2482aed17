"""The GPUs that a child of this command may use. They are found without torch and without CUDA: both belong to the
trainer.

nvidia-smi is asked; where there is none, the driver's device files are counted. Devices are numbered as CUDA numbers
them. Of a GPU in MIG mode only its instances can be used, one a process, and only by their ids: which of them are meant
the user has to say, in CUDA_VISIBLE_DEVICES.
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
"""Seconds that nvidia-smi has; without persistence mode it loads the driver first."""
NO_MIG = "GPUs: there are MIG instances, so none are shared out; name those to be shared out in CUDA_VISIBLE_DEVICES"
LINE = re.compile(r"GPU (\d+): .*|\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Found:
    """What the machine has."""

    devices: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    """Those of MIG; their GPUs are not among the devices."""

    @property
    def count(self) -> int:
        """That one process sees: of MIG's instances a single one."""
        return len(self.devices) or min(1, len(self.instances))


Discovery = Callable[[], Found]


def of_listing(text: str) -> Found:
    """What `nvidia-smi -L` says."""
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
    """Asks the machine."""
    asked = shutil.which(program)
    if asked is not None:
        try:
            done = subprocess.run([asked, "-L"], capture_output=True, text=True, timeout=PATIENCE, check=True)
            return of_listing(done.stdout)
        except (OSError, subprocess.SubprocessError):  # a driver that does not answer: its files say how many there are
            pass
    count = sum(1 for name in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", name.name))
    return Found(tuple(map(str, range(count))))


@dataclass(frozen=True, slots=True)
class Dividing:
    """GPUs of the machine, for so many members; 1: nothing is divided. Nobody is asked before it matters."""

    environ: Mapping[str, str]
    discover: Discovery
    members: int

    def a_member(self) -> int:
        """How many a member has, by `--nproc-per-node gpu`."""
        return a_member(visible(self.environ, self.discover).count, self.members)

    def shares(self, nproc: int) -> tuple[tuple[Share, ...], tuple[str, ...]]:
        """By rank index, and what there is to say of them."""
        if self.members < 2:
            return (), ()
        found = visible(self.environ, self.discover)
        if found.instances:
            return (), (NO_MIG,)
        given = shares(found.devices, self.members, nproc)
        told = (sentence(given, found.devices, WORKER), warning(given, nproc)) if given else ()
        return given, tuple(filter(None, told))


def visible(environ: Mapping[str, str], discover: Discovery) -> Found:
    """What the user allows, who may name instances of MIG too; else all that there is."""
    return Found(listed(environ[VISIBLE])) if VISIBLE in environ else discover()
