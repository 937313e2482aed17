"""Packets of a netfilter queue arrive late, complete and in order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import training_hooks

pytestmark = [
    pytest.mark.xdist_group("netns"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a network to try it on"),
    pytest.mark.skipif(not shutil.which("iptables"), reason="needs iptables"),
]

DELAY = 0.15
TRIED = """
import json, os, signal, socket, subprocess, sys, time

sys.path.insert(0, sys.argv[1])
from training_hooks.chaos import nfqueue_delay

queue = nfqueue_delay.Queue(77)
child = os.fork()
if child == 0:
    nfqueue_delay.hold_back(queue, float(sys.argv[2]))
queue.close()
try:
    rule = ["INPUT", "-p", "udp", "-j", "NFQUEUE", "--queue-num", "77", "--queue-bypass"]
    subprocess.run(["iptables", "-w", "-A", *rule], check=True)
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.settimeout(300)
    end.bind(("127.0.0.1", 0))
    sent = {}
    for number in range(200):
        sent[number] = time.monotonic()
        end.sendto(str(number).encode(), end.getsockname())
    came = [(int(end.recv(20)), time.monotonic()) for _ in sent]
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
end.sendto(b"200", end.getsockname())
print(json.dumps({"order": [number for number, _ in came], "took": min(at - sent[number] for number, at in came),
                  "after": int(end.recv(20))}))
"""


def test_packets_are_delayed_in_order_and_pass_after_the_fault() -> None:
    root = str(Path(training_hooks.PACKAGE).parent)
    script = 'ip link set lo up && exec "$@"'
    command = ("unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", TRIED, root, str(DELAY))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["order"] == list(range(200))
    assert found["took"] >= DELAY
    assert found["after"] == 200
