"""Runs a job whose members are pods applied by hand: the real master, with kubectl as its platform.

    python -P examples/pod/by_hand.py --namespace by-hand --folder /tmp/by-hand --host ADDRESS [--members N]

The master (`python -P -E -m outrider.master`) runs on this machine, at an address that the pods can reach. This process
serves its `node.sock`: it creates members from pod.yaml, deletes them on request, and reports changes that `kubectl
get` shows. `outrider status` and the other commands work on the job with OUTRIDER_HOME set to the folder. When
interrupted, it deletes the pods.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

from outrider.runtime.curve_keys import new_key_pair
from outrider.runtime.lines import LineConnection
from outrider.runtime.unix import listening_socket

HERE = Path(__file__).resolve().parent
JOB = "by-hand"
SELECTOR = f"outrider.dev/job={JOB}"
LOOK_EVERY = 0.3


async def kubectl(namespace: str, *arguments: str, given: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "-n", namespace, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given.encode())
    if process.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {err.decode().strip()}")
    return out.decode()


class Hand:
    """Serves node.sock (docs/contracts.md §5)."""

    def __init__(self, namespace: str, manifest: dict[str, Any]) -> None:
        self._namespace, self._manifest = namespace, manifest
        self._connections: set[LineConnection] = set()
        self._pods: dict[str, dict[str, Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self) -> LineConnection:
        return LineConnection(self._connections.add, self._do, lambda line, _wrong: self._connections.discard(line))

    def _report(self, line: dict[str, Any]) -> None:
        print("platform:", json.dumps(line), flush=True)
        for connection in self._connections:
            connection.send(line)

    def _do(self, connection: LineConnection, line: dict[str, Any]) -> None:
        print("master:", json.dumps(line), flush=True)
        if line["do"] == "list":
            connection.send({"pods": list(self._pods.values())})
            return
        task = asyncio.ensure_future(self._create(line) if line["do"] == "create" else self._delete(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, line: dict[str, Any]) -> None:
        pod = json.loads(json.dumps(self._manifest))
        index = line["rank_index"]
        pod["metadata"]["name"] = line["member"]
        pod["metadata"]["labels"]["outrider.dev/rank-index"] = "" if index is None else str(index)
        await kubectl(self._namespace, "apply", "-f", "-", given=json.dumps(pod))

    async def _delete(self, line: dict[str, Any]) -> None:
        grace = max(1, int(line["grace"]))
        await kubectl(
            self._namespace,
            "delete",
            "pod",
            line["member"],
            "--wait=false",
            "--ignore-not-found",
            f"--grace-period={grace}",
        )

    async def look(self) -> None:
        """Report every change of every pod, forever."""
        while True:
            listed = json.loads(await kubectl(self._namespace, "get", "pods", "-l", SELECTOR, "-o", "json"))
            seen = {pod["metadata"]["name"]: line_of(pod) for pod in listed["items"]}
            for name, line in seen.items():
                if self._pods.get(name) != line:
                    self._report({"pod": line})
            for name in set(self._pods) - set(seen):
                gone = self._pods[name]
                about = {key: gone[key] for key in ("member", "uid", "exit_code")}
                self._report({"gone": about | {"reason": "Deleted"}})
            self._pods = seen
            await asyncio.sleep(LOOK_EVERY)


def line_of(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod in the form of node.sock."""
    labels, status = pod["metadata"]["labels"], pod["status"]
    containers = {each["name"]: each for each in status.get("containerStatuses", [])}
    restarts = {name: each["restartCount"] for name, each in containers.items() if each["restartCount"]}
    last = {name: each.get("lastState", {}).get("terminated", {}) for name, each in containers.items()}
    ends = [
        f"Restarted{name}: {last[name].get('reason')} {last[name].get('exitCode')}, {n} times"
        for name, n in restarts.items()
    ]
    ended = containers.get("trainer", {}).get("state", {}).get("terminated", {})
    index = labels["outrider.dev/rank-index"]
    return {
        "member": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "role": labels["outrider.dev/role"],
        "rank_index": int(index) if index else None,
        "phase": "terminating" if "deletionTimestamp" in pod["metadata"] else status["phase"].lower(),
        "reason": "; ".join(ends) or status.get("reason", ""),
        "exit_code": ended.get("exitCode"),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namespace", required=True, help="namespace of the pods; created if it is missing")
    parser.add_argument("--folder", required=True, type=Path, help="folder with a short path, for unix sockets")
    parser.add_argument("--host", required=True, help="address at which the pods reach this machine")
    parser.add_argument("--port", type=int, default=31999)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--pod", type=Path, default=HERE / "pod.yaml")
    parser.add_argument("--script", type=Path, default=HERE / "train.py")
    asked = parser.parse_args()

    job = asked.folder / "jobs" / JOB
    job.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (job / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock shows the commands that the job runs
    keys, token = new_key_pair(), secrets.token_hex(16)
    endpoint = f"tcp://{asked.host}:{asked.port}"
    (job / "master.key").write_text(keys.secret)
    (job / "token").write_text(token)
    await prepare(asked.namespace, endpoint, keys.public, token, asked.script)
    shown = await kubectl(asked.namespace, "apply", "--dry-run=client", "-o", "json", "-f", str(asked.pod))
    hand = Hand(asked.namespace, json.loads(shown))
    server = await asyncio.get_running_loop().create_unix_server(
        hand.connection, sock=listening_socket(job / "node.sock")
    )
    spec = {
        "name": JOB,
        "min_members": asked.members,
        "max_members": asked.members + 1,
        "replicas": asked.members,
        "nproc": 2,
    }
    looking = asyncio.ensure_future(hand.look())
    try:
        return await run_master(job, endpoint, spec)
    finally:
        looking.cancel()
        server.close()
        await kubectl(asked.namespace, "delete", "pod", "-l", SELECTOR, "--wait=false", "--grace-period=1")


async def prepare(namespace: str, endpoint: str, key: str, token: str, script: Path) -> None:
    made = [
        ("namespace", namespace),
        ("configmap", "outrider-master", f"--from-literal=endpoint={endpoint}", f"--from-literal=key={key}"),
        ("configmap", "script", f"--from-file=train.py={script}"),
        ("secret", "generic", "outrider-token", f"--from-literal=token={token}"),
    ]
    for words in made:
        text = await kubectl(namespace, "create", *words, "--dry-run=client", "-o", "json")
        await kubectl(namespace, "apply", "-f", "-", given=text)


async def run_master(job: Path, endpoint: str, spec: dict[str, Any]) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-E", "-m", "outrider.master"),
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")},
            "OUTRIDER_JOB": JOB,
            "OUTRIDER_JOB_DIR": str(job),
            "OUTRIDER_SPEC": json.dumps(spec),
            "OUTRIDER_BIND": endpoint,
            "OUTRIDER_MASTER_KEY_FILE": str(job / "master.key"),
            "OUTRIDER_TOKEN_FILE": str(job / "token"),
            "OUTRIDER_NODE_SOCKET": str(job / "node.sock"),
        },
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, process.terminate)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.terminate)
    return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
