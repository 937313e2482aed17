"""Series under which each alert of manifests/monitoring fires, and series of well jobs under which none does.

The values are in the notation of `promtool test rules`, a sample a minute.
"""

from __future__ import annotations

from typing import NamedTuple

JOB = 'namespace="a", job="train"'
OF_JOB = {"namespace": "a", "job": "train"}
MASTER = 'namespace="outrider-system"'
RUNS = f'outrider_job_phase{{{JOB}, phase="running"}}'


class Case(NamedTuple):
    series: dict[str, str]
    summary: str
    labels: dict[str, str] = OF_JOB
    severity: str = "warning"
    at: str = "2h"


FIRES = {
    "OutriderNoLeader": Case(
        {f'outrider_leader{{{MASTER}, pod="m1"}}': "0x120"},
        "No master leads, so no fault of any job is repaired.", {}, "critical", "3m",
    ),
    "OutriderApiServerErrors": Case(
        {f'outrider_api_requests_total{{{MASTER}, code="201"}}': "0+90x120",
         f'outrider_api_requests_total{{{MASTER}, code="503"}}': "0+8x120",
         f'outrider_api_requests_total{{{MASTER}, code="0"}}': "0+2x120"},
        "10% of the masters' requests to the API server fail.", {"namespace": "outrider-system"},
    ),
    "OutriderSidecarsRejected": Case(
        {f'outrider_sidecars_rejected_total{{{MASTER}, reason="token"}}': "0+1x120",
         f'outrider_sidecars_rejected_total{{{MASTER}, reason="busy"}}': "0+1x120"},
        "The master rejects sidecars (reason token): their pods train unsupervised or not at all.",
        {"namespace": "outrider-system", "reason": "token"},
    ),
    "OutriderStatusNotSaved": Case(
        {f'outrider_events_total{{{JOB}, kind="StatusWriteFailed"}}': "_x110 1x20"},
        "The status of a/train cannot be written: no generation of it starts.",
        {**OF_JOB, "kind": "StatusWriteFailed"},
    ),
    "OutriderSupervisionFailed": Case(
        {f'outrider_events_total{{{JOB}, kind="SupervisionFailed"}}': "1x100 2x20"},
        "Outrider itself failed on a/train; its ranks train.", {**OF_JOB, "kind": "SupervisionFailed"},
    ),
    "OutriderJobFailed": Case(
        {f'outrider_job_phase{{{JOB}, phase="failed"}}': "0x100 1x20"},
        "Job a/train has failed.", {**OF_JOB, "phase": "failed"},
    ),
    "OutriderJobPending": Case(
        {f'outrider_job_phase{{{JOB}, phase="pending"}}': "1x120"},
        "Job a/train has waited for its first generation for 30 min.", {**OF_JOB, "phase": "pending"},
    ),
    "OutriderNoStep": Case(
        {f"outrider_step_age_seconds{{{JOB}}}": "0+60x120", RUNS: "0x120",
         f'outrider_job_phase{{{JOB}, phase="restarting"}}': "1x120"},
        "Job a/train has made no new step for 2h 0m 0s.", severity="critical",
    ),
    "OutriderRestartsOften": Case(
        {f"outrider_restarts_total{{{JOB}}}": "0+0.1x130"}, "Job a/train has restarted 6 times within an hour.",
    ),
    "OutriderGoodputLow": Case(
        {f"outrider_goodput_1h_ratio{{{JOB}}}": "0.5x120", RUNS: "1x120"},
        "Job a/train trained in 50% of the last hour.",
    ),
    "OutriderRecoverySlow": Case(
        {f'outrider_fault_lost_seconds_bucket{{{JOB}, kind="MemberLost", le="300.0"}}': "_x100 0x20",
         f'outrider_fault_lost_seconds_bucket{{{JOB}, kind="MemberLost", le="1000.0"}}': "_x100 1x20",
         f'outrider_fault_lost_seconds_bucket{{{JOB}, kind="MemberLost", le="+Inf"}}': "_x100 1x20"},
        "A fault of job a/train costs up to 15m 30s.",
    ),
    "OutriderMembersMissing": Case(
        {f"outrider_members_desired{{{JOB}}}": "4x120", f'outrider_members{{{JOB}, state="running"}}': "2x120",
         f'outrider_members{{{JOB}, state="done"}}': "1x120", f'outrider_members{{{JOB}, state="spare"}}': "1x120",
         RUNS: "1x120"},
        "Job a/train has lacked 1 of its members for 30 min.",
    ),
    "OutriderHang": Case(
        {f'outrider_faults_total{{{JOB}, kind="HangDetected"}}': "0x100 1x20"},
        "Ranks of job a/train hung within the last hour.", {**OF_JOB, "kind": "HangDetected"},
    ),
    "OutriderStraggler": Case(
        {f"outrider_stragglers{{{JOB}}}": "0x60 1x60"}, "Slow members hold up job a/train: 1.",
    ),
    "OutriderCheckpointOld": Case(
        {f"outrider_checkpoint_age_seconds{{{JOB}}}": "3600+60x120", RUNS: "1x120"},
        "The newest checkpoint of job a/train is 3h 0m 0s old.",
    ),
    "OutriderCheckpointStalls": Case(
        {f'outrider_badput_seconds_total{{{JOB}, cause="checkpoint_stall"}}': "0+15x120",
         f'outrider_badput_seconds_total{{{JOB}, cause="starting"}}': "0+5x120",
         f"outrider_productive_seconds_total{{{JOB}}}": "0+40x120"},
        "Job a/train waits for its saves in 25% of its time.",
    ),
    "OutriderNodeSuspect": Case(
        {'outrider_node_incidents_total{namespace="a", job="train", node="n1", kind="MemberLost"}': "1x60 2x60",
         'outrider_node_incidents_total{namespace="b", job="other", node="n1", kind="WorkerExited"}': "_x60 1x60"},
        "Node n1 is suspect in 3 faults of the last day.", {"node": "n1"},
    ),
    "OutriderLinkDown": Case(
        {f"outrider_links_down{{{JOB}}}": "0x100 2x20"},
        "Pairs of members of job a/train that cannot reach each other: 2.",
    ),
}  # fmt: skip
QUIET = {
    f'outrider_leader{{{MASTER}, pod="m1"}}': "1x180",
    f'outrider_leader{{{MASTER}, pod="m2"}}': "0x180",
    f'outrider_api_requests_total{{{MASTER}, code="200"}}': "0+100x180",
    f'outrider_api_requests_total{{{MASTER}, code="503"}}': "0+2x180",
    f'outrider_sidecars_rejected_total{{{MASTER}, reason="early"}}': "0+1x180",
    RUNS: "1x180",
    f'outrider_job_phase{{{JOB}, phase="pending"}}': "0x180",
    f'outrider_job_phase{{{JOB}, phase="failed"}}': "0x180",
    f"outrider_step_age_seconds{{{JOB}}}": "1x180",
    f"outrider_checkpoint_age_seconds{{{JOB}}}": "60x180",
    f"outrider_restarts_total{{{JOB}}}": "0x100 1x79",
    f"outrider_goodput_1h_ratio{{{JOB}}}": "0.97x180",
    f"outrider_members_desired{{{JOB}}}": "4x180",
    f'outrider_members{{{JOB}, state="running"}}': "4x160 3x5 4x14",
    f'outrider_faults_total{{{JOB}, kind="HangDetected"}}': "1x180",
    f"outrider_stragglers{{{JOB}}}": "0x170 1x9",
    f"outrider_links_down{{{JOB}}}": "0x180",
    'outrider_node_incidents_total{namespace="a", job="train", node="n1", kind="MemberLost"}': "2x180",
    'outrider_node_incidents_total{namespace="a", job="train", node="other", kind="MemberLost"}': "9x180",
    f'outrider_fault_lost_seconds_bucket{{{JOB}, kind="WorkerExited", le="100.0"}}': "1x180",
    f'outrider_fault_lost_seconds_bucket{{{JOB}, kind="WorkerExited", le="+Inf"}}': "1x180",
    f'outrider_events_total{{{JOB}, kind="StatusWriteFailed"}}': "1x180",
    f'outrider_events_total{{{JOB}, kind="SupervisionFailed"}}': "1x180",
    f"outrider_productive_seconds_total{{{JOB}}}": "0+230x180",
    f'outrider_badput_seconds_total{{{JOB}, cause="checkpoint_stall"}}': "0+10x180",
    # a job that is over
    'outrider_job_phase{namespace="a", job="over", phase="succeeded"}': "1x180",
    'outrider_job_phase{namespace="a", job="over", phase="running"}': "0x180",
    'outrider_step_age_seconds{namespace="a", job="over"}': "9000x180",
    'outrider_checkpoint_age_seconds{namespace="a", job="over"}': "9000x180",
    'outrider_goodput_1h_ratio{namespace="a", job="over"}': "0x180",
    'outrider_members_desired{namespace="a", job="over"}': "4x180",
    'outrider_members{namespace="a", job="over", state="running"}': "0x180",
}
