"""`recovery.atomicSave`: whether checkpoints are written beside and renamed, and what happens without room for that.
True, or left out: they are wherever they can be; `required`: a save that cannot be whole fails; false: none is."""

from __future__ import annotations

VARIABLE = "OUTRIDER_ATOMIC_SAVE"
REQUIRED = "required"
_WORDS = {"true": "", "enabled": "", "1": "", "": "", "false": "0", "disabled": "0", "0": "0", REQUIRED: REQUIRED}


def of_field(value: object) -> str:
    """What the hooks are told (docs/contracts.md §2), empty: nothing."""
    return "0" if value is False else REQUIRED if value == REQUIRED else ""


def of_words(text: str) -> str:
    """The same, of an annotation or a flag. Raises ValueError."""
    if text.lower() not in _WORDS:
        raise ValueError(f'{text!r} must be "true", "false" or "{REQUIRED}"')
    return _WORDS[text.lower()]
