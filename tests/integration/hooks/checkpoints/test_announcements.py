"""A rank that learns of a save by other ways than the store finds rank 0's announcement there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

SCRIPT = """
import select, socket, threading, time
import torch.distributed as dist
from training_hooks.checkpoints.announcements import SAVED, Announcements

server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
door = socket.create_server(("127.0.0.1", 0))

def carry():  # what rank 0 says is long on its way, as where the store's process gets no CPU
    (near, _), far = door.accept(), socket.create_connection(("127.0.0.1", server.port))
    while True:
        for ready in select.select([near, far], [], [])[0]:
            data = ready.recv(65536)
            if ready is near:
                time.sleep(0.3)
            (far if ready is near else near).sendall(data)

threading.Thread(target=carry, daemon=True).start()
rank0, rank1 = Announcements(2, 1), Announcements(2, 1)
rank0.store = dist.TCPStore("127.0.0.1", door.getsockname()[1], is_master=False)
rank1.store = dist.TCPStore("127.0.0.1", server.port, is_master=False)
for number in range(1, 6):
    assert rank0.announce(SAVED, number)
    assert rank1.announced(SAVED) == number, (number, rank1.announced(SAVED))
print("known", flush=True)
import os
os._exit(0)
"""


def test_an_announcement_is_readable_when_the_save_returns(warm: Warm, tmp_path: Path) -> None:
    """torch's store does not answer a `set`, and a barrier does not go through the store."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = warm.run(tmp_path)
    assert done.stdout.strip() == "known", done.stderr
