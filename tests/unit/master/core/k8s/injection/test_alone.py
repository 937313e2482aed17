"""Which pods may begin without a master, and what is said and set in one that may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.master.core.k8s.injection.alone import why_it_may
from outrider.master.core.k8s.injection.webhook import inject
from outrider.master.core.k8s.values.names import Document
from tests.unit.master.core.k8s.injection.injecting import (
    PLACE,
    POLICY,
    injected,
    main,
    pod_of,
    sidecar,
    trainer,
    values,
)

MAY = replace(PLACE, is_untrained=True, members=4)
MEETS = [{"name": "MASTER_ADDR", "value": "gpt-0.gpt"}]


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"env": MEETS}, "its variable MASTER_ADDR has the rendezvous address"),
        ({"env": [{"name": "TF_CONFIG", "valueFrom": {"configMapKeyRef": {}}}]}, "its variable TF_CONFIG has the"),
        ({"env": [{"name": "MASTER_ADDR", "value": "127.0.0.1"}]}, ""),
        ({"env": [{"name": "LR", "value": "gpt-0"}]}, ""),
        ({"command": ["torchrun", "--rdzv-endpoint=gpt-0:29500", "t.py"]}, "its command has the rendezvous address:"),
        ({"command": ["sh", "-c"], "args": ["torchrun --master_addr $HEAD t.py"]}, "its command has the rendezvous"),
        ({"command": ["torchrun", "--rdzv-endpoint=localhost:0", "t.py"]}, ""),
        ({"command": ["torchrun", "t.py"]}, ""),
    ],
)  # fmt: skip
def test_a_command_that_knows_where_its_world_meets_may_begin_by_itself(container: Document, why: str) -> None:
    found = why_it_may(main(**container), {}, MAY)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("place", "notes", "why"),
    [
        (replace(MAY, members=1), {}, "it is the only member of its job"),
        (replace(MAY, members=1), {"outrider.dev/spares": "1"}, ""),
        (replace(MAY, member="worker-0"), {}, ""),
        (replace(MAY, is_untrained=False), {}, ""),
        (replace(MAY, members=None), {}, ""),
    ],
)  # fmt: skip
def test_so_may_the_only_member_of_a_job_of_one_size(place: Any, notes: Document, why: str) -> None:
    assert why_it_may(main(env=[] if why else MEETS), notes, place) == why


def test_a_pod_that_may_start_without_a_master_has_the_time_in_its_variables_and_explanation() -> None:
    pod = pod_of(main(command=["python", "t.py"], env=MEETS))
    found = injected(pod, MAY)
    assert found["metadata"]["annotations"]["outrider.dev/alone-after"] == "600"
    assert values(sidecar(found))["OUTRIDER_ALONE_AFTER"] == "600"
    assert values(trainer(found))["OUTRIDER_PATIENCE"] == "600"
    said = " ".join(inject(pod, MAY, POLICY).explanation)
    assert "the pod has the role worker in job research/gpt, with no rank index: it is a spare until" in said
    waits = injected(pod_of(), MAY)
    assert "outrider.dev/alone-after" not in waits["metadata"]["annotations"]
    assert "OUTRIDER_ALONE_AFTER" not in values(sidecar(waits))
