"""A real sidecar that reaches no master, beside a real launcher or template: the command runs, or waits and says so."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from outrider.wire.messages.membership import Hello, Refused
from tests.integration.sidecar.bench import DEADLINE, Master, Member, member

ROOT = Path(__file__).resolve().parents[3]
LAUNCH, HOOKS = ROOT / "training_hooks" / "outrider-launch", ROOT / "training_hooks" / "path"
SCRIPT = "import os, pathlib, sys\npathlib.Path(sys.argv[1]).write_text(os.environ.get('RANK', 'none'))\n"


@asynccontextmanager
async def pod(folder: Path, *command: str, **settings: str) -> AsyncIterator[tuple[Member, asyncio.subprocess.Process]]:
    """Nothing listens at its master's endpoint."""
    (folder / "volume").mkdir()
    (folder / "train.py").write_text(SCRIPT)
    master = Master(None)
    made = Member(folder / "volume", master, OUTRIDER_MASTER=f"tcp://127.0.0.1:{find_port()}", **settings)
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OUTRIDER_DIR": str(made.folder)}
    environ |= {"OUTRIDER_HOOKS": str(HOOKS), "OUTRIDER_POD_UID": made.uid, "OUTRIDER_PATIENCE": "inf"}
    await made.start()
    trainer = await asyncio.create_subprocess_exec(
        *("/bin/sh", str(LAUNCH)), *command, env=environ, cwd=folder, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield made, trainer
    finally:
        if trainer.returncode is None:
            trainer.kill()
            await trainer.wait()
        await made.kill()
        master.close()


async def ended(trainer: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(DEADLINE):
        _, errors = await trainer.communicate()
    return errors.decode()


@pytest.mark.slow
@pytest.mark.parametrize("command", [[sys.executable, "train.py"], ["sh", "-c", "echo ${RANK:-none} > $0"]])
async def test_a_command_that_may_is_let_go_once_and_its_sidecar_ends_after_it(
    tmp_path: Path, command: list[str]
) -> None:
    result = tmp_path / "result"
    async with pod(tmp_path, *command, str(result), OUTRIDER_ALONE_AFTER="1") as (made, trainer):
        errors = await ended(trainer)
        assert trainer.returncode == 0
        assert result.read_text().strip() == "none"
        assert "no master was reached at tcp://127.0.0.1" in errors
        assert "runs without Outrider" in errors
        code, log = await made.ends()
        assert code == 0
        assert "the command runs unsupervised from now on" in log
        assert (made.folder / "supervision").read_text() == f"alone {trainer.pid}\n"


@pytest.mark.slow
async def test_a_sidecar_that_is_killed_while_the_command_runs_knows_it_and_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    command = ["sh", "-c", "read line < $0; exit 3", str(tmp_path / "gate")]
    async with pod(tmp_path, *command, OUTRIDER_ALONE_AFTER="1") as (made, trainer):
        gate = await asyncio.to_thread(open, tmp_path / "gate", "w")  # it is open when the command runs
        await made.kill()
        made.environment["OUTRIDER_ALONE_AFTER"] = ""
        await made.start()
        with gate:
            gate.write("go\n")
        await ended(trainer)
        assert trainer.returncode == 3
        code, log = await made.ends()
        assert code == 0
        assert "or the hooks, had decided so" in log


@pytest.mark.slow
async def test_a_command_to_which_a_master_has_spoken_waits_through_a_restart_of_its_sidecar() -> None:
    refusal = Refused("the platform has not shown its pod yet", 1.0)
    async with member(refusal, OUTRIDER_ALONE_AFTER="1000") as (master, made):
        await master.hears(Hello)
        await master.hears(Hello)  # it has heard the refusal
        assert (made.folder / "supervision").read_text() == "served\n"
