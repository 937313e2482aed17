"""`recovery.atomicSave`: whether a checkpoint is written to a temporary file and then renamed.

- `true` (the default): a save is atomic if the disk has room for two checkpoints; otherwise it overwrites the old file.
- `required`: a save that cannot be atomic fails.
- `false`: every save overwrites the old file.
"""

from __future__ import annotations

from outrider.master.core.k8s.values.field_errors import unsupported

VARIABLE = "OUTRIDER_ATOMIC_SAVE"
REQUIRED = "required"
_WORDS = {"true": "", "enabled": "", "1": "", "": "", "false": "0", "disabled": "0", "0": "0", REQUIRED: REQUIRED}


def of_field(value: object) -> str:
    """The value of OUTRIDER_ATOMIC_SAVE for the hooks (docs/contracts.md §2); empty if the variable is not set."""
    return "0" if value is False else REQUIRED if value == REQUIRED else ""


def of_words(text: str) -> str:
    """The value of OUTRIDER_ATOMIC_SAVE for an annotation or a flag. Raises ValueError."""
    if text.lower() not in _WORDS:
        raise ValueError(unsupported("", text, ("true", "false", REQUIRED)))
    return _WORDS[text.lower()]
