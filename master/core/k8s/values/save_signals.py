"""The field error for an unsupported `saveSignal`."""

from __future__ import annotations

from outrider.master.core.checkpoints.save_signal import MAY_BE, TAKEN
from outrider.master.core.k8s.values.field_errors import unsupported


def error(path: str, text: str) -> str:
    name = f"SIG{text.strip().upper().removeprefix('SIG')}"
    return unsupported(path, text, MAY_BE) + (f" ({name}: {TAKEN[name]})" if name in TAKEN else "")
