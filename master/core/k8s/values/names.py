"""Names that pods, manifests and master must agree on (docs/contracts.md §8)."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""What the API server says, or is told: JSON."""

DOMAIN = "outrider.dev"
GROUP_VERSION = f"{DOMAIN}/v1alpha1"
KIND = "ElasticJob"
PLURAL = "elasticjobs"

JOB, ROLE, MEMBER, ID, RANK_INDEX, RELAUNCHES, INJECT, LEADER, SERVES = (
    f"{DOMAIN}/{word}"
    for word in ("job", "role", "member", "id", "rank-index", "relaunches", "inject", "leader", "serves")
)
INJECTED = f"{DOMAIN}/injected"
PART = f"{DOMAIN}/part"
"""Of our own pods: master or webhook."""
ALONE_AFTER = f"{DOMAIN}/alone-after"
"""Seconds after which the pod's command begins by itself if its sidecar hears no master (docs/adr/0028)."""
MODE = f"{DOMAIN}/supervision-mode"
RESOURCES = f"{DOMAIN}/resources"
"""What the pod of a parameter server was made with, in words."""
MIN, MAX, NPROC, SPARES, NODE_CHECK, SCRIPT, PYTHONPATH, PER_RANK, MAX_RESTARTS, CONTAINER, CHAOS, \
    ELASTIC_DATA, KEEP_GLOBAL_BATCH, MIGRATION_DIR, CHECKPOINT_MEMORY, CHECKPOINT_PATH, SAVE_SIGNAL, PS_RESOURCES, \
    ATOMIC_SAVE, REQUIRE_RESUME = (
    f"{DOMAIN}/{word}"
    for word in (
        "min", "max", "nproc-per-node", "spares", "node-check", "script", "pythonpath", "per-rank", "max-restarts",
        "container", "chaos", "elastic-data", "keep-global-batch",
        "migration-dir", "checkpoint-memory", "checkpoint-path", "save-signal", "ps-resources", "atomic-save",
        "require-resume",
    )
)  # fmt: skip
"""Annotations that a user may write, on a pod or on an ElasticJob."""

SHARES = f"{DOMAIN}/shares-processes"
"""Annotation: containers, with commas between them, whose processes the trainer may see; its user says so."""
SIDECAR_USER = 64087
"""Of nobody else, as far as we know: 65532 is many images' own, and a trainer of the sidecar's user reads its token."""
CONTROL_PLANE = ("kube-system", "kube-public", "kube-node-lease")
"""Namespaces in which we never do anything."""
HOOKS_CONTAINER = "outrider-hooks"
SIDECAR_CONTAINER = "outrider-sidecar"
PROXIES = ("istio-proxy", "linkerd-proxy")
"""Containers that a service mesh puts into pods, some of them in the first place: none is ever the trainer."""
VOLUME = "outrider"
TOKEN_VOLUME = "outrider-token"
MOUNT = "/outrider"
TOKEN_MOUNT = "/var/run/secrets/outrider"
AUDIENCE = "outrider"
USERS_PYTHONPATH = "OUTRIDER_USERS_PYTHONPATH"
"""Where a PYTHONPATH that is known only when the container starts is kept: $(…) refers to it."""
RESERVED = ("OUTRIDER_DIR", "OUTRIDER_HOOKS", "OUTRIDER_POD_UID", "OUTRIDER_JOB", USERS_PYTHONPATH)
"""Variables that only we set in the trainer's container."""
MASTER_KEY = "OUTRIDER_MASTER_KEY"
"""The sidecar's variable with its master's CURVE public key."""
