"""The handlers of each occurrence: what one domain did that concerns others, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.master.core.checkpoints import data_position, planned_save
from outrider.master.core.hangs import cut_links, progress_watch
from outrider.master.core.history import notes
from outrider.master.core.nodecheck import gate as nodecheck_gate
from outrider.master.core.placement import pod_status
from outrider.master.core.scaling import log_metrics
from outrider.master.core.state.job import State
from outrider.master.core.state.occurrences import (
    CheckpointFinished,
    FailMember,
    FaultNoted,
    GenerationAdopted,
    GenerationStarted,
    MemberAdded,
    MembersCutOff,
    RankDone,
    RankSaves,
    SpecEdited,
    StepMade,
    WorkersStarted,
)

ON: dict[type, tuple[Callable[[State, Any], None], ...]] = {
    GenerationStarted: (notes.generation, progress_watch.begin, lambda state, _started: log_metrics.begin(state)),
    GenerationAdopted: (progress_watch.take_over,),
    WorkersStarted: (progress_watch.note_started,),
    StepMade: (progress_watch.note_stepped,),
    RankDone: (progress_watch.note_end,),
    RankSaves: (data_position.saved,),
    CheckpointFinished: (planned_save.checkpoint,),
    MemberAdded: (nodecheck_gate.note_new,),
    FaultNoted: (notes.fault, nodecheck_gate.note_fault),
    FailMember: (pod_status.fail_as_decided,),
    MembersCutOff: (cut_links.consider,),
    SpecEdited: (nodecheck_gate.edited, progress_watch.edited),
}


def follow(state: State) -> None:
    """Runs the handlers of all occurrences in order, including those that handlers cause."""
    while state.occurred:
        occurred, state.occurred = state.occurred, []
        for occurrence in occurred:
            for handler in ON[type(occurrence)]:
                handler(state, occurrence)
