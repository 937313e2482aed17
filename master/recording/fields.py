"""How each text of a state, an event, an action or a message is recorded.

Every field that may hold a text is in `KINDS`, and a test fails for one that is not. A text in a field that is missing
here is recorded as `TEXT`: as a word of our source, or as a placeholder. Ids need no line here: their types are known.
"""

from __future__ import annotations

TEXT = "text"
"""A word of our own source, or a placeholder."""
NAME = "name"
"""A name or an address, which stays if it has the form of one."""
NOTED = "noted"
"""A name by its type, as that of a member."""
SENTENCE = "sentence"
"""A sentence of the core, which it compares with a later one: its words stay as far as they are words of our source."""
ERROR, SIGNATURE = "error", "signature"
"""The message of an exception, and the signature of an error."""
REASON = "reason"
"""The platform's reason for the state of a pod."""
TYPE, FRAME, TRACEBACK, ANSWER = "type", "frame", "traceback", "answer"
NUMBER, CRON = "number", "cron"
LEFT_OUT = "left out"
"""What the core makes of the rest: the reasons of its actions. A replay makes it again."""

_OF_KIND = {
    NAME: """
        crowd.Crowd.unheard crowd.Crowd.unheard_on crowd.Crowd.bad_nodes earlier.Earlier.addresses
        checkpoints.DataNote.generation counters.Counters.incidents faults.Exclusion.avoiding
        faults.Exclusion.condemned generation.Fault.node
        generation.World.address hangs.Call.group hangs.Call.op hangs.Call.name hangs.Collection.request
        hangs.Hangs.collections hangs.Looks.request hangs.Suspicion.requests member.Member.node member.Member.avoid
        member.Member.address member.Member.machine occurrences.FaultNoted.node placement.Placement.nodes
        placement.Placement.waits_behind rules.Rules.marked rules.Rules.flags rules.Rules.hits rules.Rules.holding
        timers.Deadlines._at timers.Deadlines._heap state.PsState.collections checkpoints.Wanted.address
        generation.Start.master_addr links.Neighbour.address links.Probe.address membership.Hello.address
        membership.Hello.machine membership.Welcome.master node_check.CheckPeer.address node_check.Check.address
        events.PodSeen.node events.NodeSeen.node events.NodeSeen.conditions events.NodeSeen.taints
        events.TurnTold.behind events.Asked.request actions.CreatePod.avoid actions.ProbeMember.address
        actions.Deliver.request spec.Rule.condition spec.Rule.taint spec.JobSpec.save_signal spec.JobSpec.time_zone
        spec.JobSpec.ps spec.JobSpec.workers spec.JobSpec.chief spec.JobSpec.own_address history.Case.node
        history.History.holders history.History.generations history.Said.member
    """,
    ERROR: """
        checkpoints.StateSaved.error checkpoints.Fetched.error generation.WorkerExit.error_message
        generation.StartFailed.error node_check.PeerCheck.error node_check.Checked.error nodecheck.Answer.error
        events.ActionFailed.error
    """,
    SIGNATURE: "faults.Faults.same_error generation.Failure.signature",
    REASON: """
        member.Member.pod_reason placement.FailedPod.taken placement.Placement.refusals placement.Placement.closed
        events.PodSeen.reason events.PodGone.reason events.NodeSeen.reason events.CreateRejected.reason
        history.Case.pod
    """,
    TYPE: "generation.WorkerExit.error_type",
    FRAME: """
        generation.WorkerExit.error_frame hangs.Call.frame hangs.Row.stack hangs.RankEvidence.stack
    """,
    TRACEBACK: "generation.WorkerExit.traceback",
    ANSWER: "diagnostics.Answer.body hangs.Collection.bodies",
    NUMBER: "log_lines.Group.text",
    CRON: "spec.Entry.cron",
    LEFT_OUT: """
        hangs.Collection.known checkpoints.SaveState.reason checkpoints.Fetch.reason generation.Start.reason
        generation.Stop.reason membership.Refused.reason membership.Finish.reason membership.Finish.last_words
        member.Order.reason actions.Send.reason actions.CloseSession.reason actions.CreatePod.reason
        actions.DeletePod.reason actions.PlacePod.reason actions.HidePod.reason actions.ResizeOwner.reason
        actions.FollowOwner.reason actions.WriteReplicas.reason actions.ProbeMember.reason actions.SaveStatus.reason
        actions.SaveStatus.status actions.Announce.reason actions.Announce.detail actions.Deliver.reason
        actions.Deliver.bodies actions.EndJob.reason actions.SaveHistory.part actions.SaveHistory.reason
    """,
    SENTENCE: """
        culprit.Finding.sentence hangs.Call.shape job.State.message job.State.resize job.State.would
        member.Member.refusal membership.Membership.in_the_way scaling.Metrics.problem scaling.Metrics.reported
        scaling.Scaling.by_hand scaling.Scaling.message state.PsState.description state.PsState.descriptions
        state.PsState.message state.PsState.would stragglers.Comparison.problems history.Said.sentence
        history.RuleLine.line
    """,
    TEXT: """
        checkpoints.DataNote.kind checkpoints.DataNote.sentence counters.Counters.checkpoints counters.Counters.events
        counters.Counters.faults counters.Counters.stages earlier.Earlier.saved_world
        earlier.Earlier.saved_left faults.Faults.counts generation.Failure.ruling generation.Failure.note
        generation.Fault.kind generation.Fault.reason generation.PlannedSave.why generation.PlannedSave.signal
        generation.Restoring.name generation.Resume.path generation.Resume.verdict hangs.Row.process hangs.Row.phase
        hangs.RankEvidence.process hangs.RankEvidence.phase hangs.Pace.longest hangs.Seen.phase hangs.Suspicion.said
        hangs.Looks.doubtless hangs.Watch.phases hangs.Watch.inherited hangs.Collection.what job.State.stage
        job.State.phase job.State.restart_wanted job.State.stop_wanted member.Suspicion.reported member.Member.life
        member.Member.pod_phase member.Member.sidecar_ended member.Member.resources member.Member.in_place
        member.Member.leaving member.Member.dismissed member.Member.taken_out member.Member.session
        member.Member.memory_key member.Member.mode member.Member.mode_reason member.Member.isolated
        member.Member.check_wanted membership.Membership.sessions nodecheck.Answer.result nodecheck.Answer.kind
        nodecheck.Finding.verdict nodecheck.Finding.check nodecheck.Finding.reason nodecheck.Finding.kind
        nodecheck.NodeCheck.rounds occurrences.GenerationAdopted.progress occurrences.FailMember.reason
        progress.Progress.saves progress.Progress.prints rules.Flag.action rules.Flag.why rules.Rules.judged
        rules.Rules.dropped_patterns scaling.Scaling.condition scaling.Scaling.trail scaling.Metrics.values
        scaling.Metrics.line status.Status.reason stragglers.Comparison.sources checkpoints.Saved.path
        checkpoints.Saved.prints checkpoints.SaveState.signal checkpoints.StateOffered.names
        checkpoints.StateSaved.path checkpoints.Wanted.memory_key data_position.DataSaid.word
        data_position.DataSaid.sentence diagnostics.Ask.what generation.Ready.rung generation.Ready.rung_reason
        generation.Start.saves generation.Start.patterns generation.Start.tf_config generation.Start.prints
        log_lines.Group.name log_lines.LineMatched.pattern log_lines.LineMatched.line
        log_lines.PatternDropped.pattern log_lines.PatternDropped.reason log_lines.PatternDropped.line
        membership.Hello.token membership.Hello.rung membership.Hello.rung_reason membership.Hello.ticket
        membership.Hello.isolated membership.Hello.memory_key membership.Welcome.ticket membership.Leaving.reason
        membership.TrainerLost.reason membership.TrainerExited.reason node_check.Checked.result
        node_check.Checked.kind report.RankProgress.phase report.OwnTime.source report.Report.state
        report.Report.note state.Task.marks state.PsState.stage state.PsState.phase state.PsState.sessions
        state.PsState.ps_lost state.PsState.marked events.Began.saved events.LeaseLost.reason
        events.SidecarSaid.session events.SidecarDisconnected.session events.PodSeen.phase
        events.PodSeen.sidecar_ended events.PodSeen.resources events.OwnerEnded.why events.RestartRejected.why
        events.StopAsked.reason events.Asked.what actions.Send.session actions.CloseSession.session
        actions.CreatePod.resources actions.Announce.kind actions.Announce.severity spec.Rule.action
        spec.Rule.log_pattern spec.RoleLimits.restart_policy spec.JobSpec.restart_policy
        spec.JobSpec.metrics_pattern spec.JobSpec.scaling spec.JobSpec.tf_config_from spec.JobSpec.remarks
        spec.JobSpec.ps_resources spec.JobSpec.resources account.Account.seconds account.Account.seen
        account.Process.counted account.Process.doing account.Seat.cause generation.Fault.stages history.Case.before
        history.Case.cost history.History.curves history.Said.kind history.Said.severity history.Track.spans
        report.Spent.doing
    """,
}
KINDS: dict[str, str] = {field: kind for kind, names in _OF_KIND.items() for field in names.split()}
"""The kind of each field that may hold a text, by its type's name and its own."""


def kind_of(type_name: str, field: str) -> str:
    return KINDS.get(f"{type_name}.{field}", TEXT)
