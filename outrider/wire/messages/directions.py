"""Which messages a sidecar sends, and which ones a master."""

from __future__ import annotations

from outrider.wire.messages.checkpoints import (
    Fetch,
    Fetched,
    Kept,
    Remembered,
    Saved,
    SaveState,
    StateOffered,
    StateSaved,
)
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.diagnostics import Answer, Ask
from outrider.wire.messages.generation import (
    Acknowledged,
    Exited,
    Ready,
    Start,
    Started,
    StartFailed,
    Stepped,
    Stop,
    Stopped,
)
from outrider.wire.messages.links import Ping, Pong, Probe, Probed
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.membership import Finish, Hello, Leaving, Refused, TrainerExited, TrainerLost, Welcome
from outrider.wire.messages.node_check import Check, Checked
from outrider.wire.messages.report import Report

FromSidecar = (
    Hello
    | Ready
    | Started
    | StartFailed
    | Stopped
    | Exited
    | Report
    | Stepped
    | Saved
    | TrainerLost
    | TrainerExited
    | Leaving
    | Probed
    | Ping
    | Answer
    | Checked
    | LineMatched
    | PatternDropped
    | DataSaid
    | StateOffered
    | StateSaved
    | Remembered
    | Fetched
    | Acknowledged
)
FromMaster = Welcome | Refused | Start | Stop | Finish | Probe | Ask | SaveState | Check | Kept | Fetch | Pong
Message = FromSidecar | FromMaster
