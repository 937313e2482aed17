"""Forty secrets, each in another place from which a bundle could take it."""

from __future__ import annotations

import json
from typing import Any

MARK = "PLANTED"
"""Every secret has it, and nothing else does."""


def secret(number: int) -> str:
    """A secret in the form of a token."""
    return f"hf_{MARK}{number:02}zq8Xy1"


S = [secret(number) for number in range(41)]
"""By number, from 1."""

ENVIRONMENT = {
    "HF_TOKEN": S[1],
    "DATABASE_URL": f"postgres://trainer:{S[2]}@db.example/runs?sslkey={S[3]}",
    "AWS_SECRET_ACCESS_KEY": S[4],
}
ARGUMENTS = [
    "--api-key", S[5], f"--token={S[6]}", f"-p{S[7]}", S[8], f"--dataset=https://me:{S[9]}@data.example/x?sig={S[10]}",
    f"PASSWORD={S[11]}", "--token-file", f"/run/secrets/{S[12]}/token", f"--nnodes={S[13]}", "--lr", S[14],
]  # fmt: skip
SCRIPT = f"""
import os, sys, time
from pathlib import Path

folder = Path(sys.argv[1])
print("logging in with {S[15]}", flush=True)
print("error: {S[16]}", file=sys.stderr, flush=True)


class LoginError(RuntimeError):
    pass


def login(token):
    try:
        raise KeyError("{S[17]}")
    except KeyError as wrong:
        raise LoginError(f"{{token}} is not valid at https://u:{S[18]}@hub.example/?key={S[19]}") from wrong


print("loss {S[20]}", flush=True)
restart, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), os.environ["RANK"]
if rank == "1" and restart == 0:
    login(token="{S[21]}")
if rank == "1" and restart == 1:
    print("last words {S[22]}", file=sys.stderr, flush=True)
    sys.exit(3)
if rank == "1" and restart == 2:
    Path("/run/secrets/{S[23]}/token").read_text()
while not (folder / "end").exists():
    time.sleep(0.02)
"""
RULES: list[dict[str, Any]] = [{"logPattern": f"never {S[24]}", "action": "restart"}]


def elastic_job() -> dict[str, Any]:
    """A document with a secret wherever a user may write one."""
    container = {
        "name": "trainer",
        "image": f"https://me:{S[25]}@registry.example/train:1?key={S[26]}",
        "command": ["python", "train.py", "--password", S[27]],
        "args": [f"--api-key={S[28]}", S[29]],
        "env": [
            {"name": "TOKEN", "value": S[30]},
            {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "a", "key": S[31]}}},
        ],
        "volumeMounts": [{"name": "token", "mountPath": f"/run/{S[32]}"}],
        "resources": {"limits": {"memory": "2Gi"}},
    }
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"password": S[33]}),
                "outrider.dev/rules": json.dumps([{"logPattern": S[34]}]),
                "team.example/key": S[35],
            },
            "labels": {"team.example/token": S[36], "outrider.dev/inject": "true"},
            "managedFields": [{"manager": S[37]}],
        },
        "spec": {
            "replicas": 2,
            "metrics": {"logPattern": f"loss {S[38]}"},
            "template": {
                "spec": {"containers": [container], "volumes": [{"name": "token", "secret": {"secretName": S[39]}}]}
            },
        },
        "status": {"phase": "running", "saved": {"faults": [[1.0, "WorkerExited", "train-0", f"wrong: {S[40]}"]]}},
    }


def found_in(content: bytes) -> list[str]:
    """The secrets in these bytes."""
    return [each for each in S[1:] if each.encode() in content]
