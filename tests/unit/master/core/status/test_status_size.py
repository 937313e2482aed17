"""The status of the largest job fits the API server's database."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

from outrider.master.core.actions import Action, SaveStatus
from outrider.master.core.events import Event, PodSeen, SidecarSaid
from outrider.master.core.k8s.elasticjob.status import status_of
from outrider.master.core.k8s.values.limits import MEMBERS
from outrider.wire.ids import PodUid
from outrider.wire.messages.membership import Hello
from tests.unit.master.core.play import Play, job

ETCD_TAKES = 1572864
"""https://etcd.io/docs/v3.5/dev-guide/limit/: bytes of one request."""
SPEC = 128 * 1024
"""The bytes left for the job's spec and the metadata."""
PLAYED = 512


class Real(Play):
    """A job whose UIDs and addresses are as long as in a cluster."""

    uids: ClassVar[dict[PodUid, PodUid]] = {}

    def core(self, event: Event) -> list[Action]:
        if isinstance(event, PodSeen):
            event = replace(event, uid=self.uid(event.uid))
        if isinstance(event, SidecarSaid) and isinstance(event.message, Hello):
            hello = replace(event.message, uid=self.uid(event.message.uid), address="10.244.103.117", probe_port=45677)
            event = replace(event, message=hello)
        return super().core(event)

    def uid(self, short: PodUid) -> PodUid:
        return self.uids.setdefault(short, PodUid(str(uuid4())))


def test_the_status_of_as_many_members_as_a_job_may_have_fits_a_request_to_etcd() -> None:
    play = Real(job(PLAYED))
    play.until_running(PLAYED)
    saved = [action.status for action in play.actions if isinstance(action, SaveStatus)][-1]
    document = {"metadata": {"name": "digits", "namespace": "a"}, "spec": {"replicaSpecs": {"worker": {}}}}
    status = status_of(document, saved, [], "2026-01-01T00:00:00Z")
    of_members = len(json.dumps(status.pop("saved"), separators=(",", ":"))) / PLAYED
    longer = 4 * (len("4096") - len("512"))  # numbers in a member's row, and its name in three places
    assert len(json.dumps(status)) + MEMBERS * (of_members + longer) + SPEC < ETCD_TAKES
