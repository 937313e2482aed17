"""Reads the environment of a service once, at the start, with clear errors about wrong values.

A wrong value must stop the start: a service that guesses would run for a week before anyone notices. So every error
names the variable, its value and what it must be. Services store the results in a frozen dataclass.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


class WrongSetting(Exception):
    """The environment has an invalid value; the message is for the user."""


class Environment:
    """Typed access to environment variables. An empty value counts as unset."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables

    def text(self, name: str, default: str | None = None, *, what: str = "a text") -> str:
        value = self._variables.get(name, "")
        if value:
            return value
        if default is None:
            raise WrongSetting(f"{name} is not set: it must be {what}")
        return default

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(name, default, what=_one_of(choices))
        if value not in choices:
            raise WrongSetting(f"{name}={value!r}: must be {_one_of(choices)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("0", "1"), "1" if default else "0") == "1"

    def integer(self, name: str, default: int | None = None, *, low: int = 0, high: int = 2**31 - 1) -> int:
        what = f"a whole number from {low} to {high}"
        value = self.text(name, None if default is None else str(default), what=what)
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise WrongSetting(f"{name}={value!r}: must be {what}")
        return number

    def optional_integer(self, name: str, *, low: int = 0, high: int = 2**31 - 1) -> int | None:
        return self.integer(name, low=low, high=high) if self._variables.get(name) else None

    def seconds(self, name: str, default: float | None = None, *, low: float = 0.0, high: float = 1e6) -> float:
        what = f"seconds from {low:g} to {high:g}"
        value = self.text(name, None if default is None else str(default), what=what)
        try:
            number = float(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise WrongSetting(f"{name}={value!r}: must be {what}")
        return number

    def optional_seconds(self, name: str, *, low: float = 0.0, high: float = 1e6) -> float | None:
        return self.seconds(name, low=low, high=high) if self._variables.get(name) else None

    def folder(self, name: str, default: str | None = None) -> Path:
        """The path of an existing, writable folder."""
        path = Path(self.text(name, default, what="a folder"))
        if not path.is_dir():
            raise WrongSetting(f"{name}={str(path)!r}: must be a folder that exists")
        if not os.access(path, os.W_OK | os.X_OK):
            raise WrongSetting(f"{name}={str(path)!r}: must be a folder that user {os.getuid()} can write to")
        return path

    def content(self, name: str) -> str:
        """The content of the file that the variable names, without its line end (a token, a key)."""
        path = Path(self.text(name, what="a file"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise WrongSetting(f"{name}={str(path)!r}: must be a file that can be read: {reason}") from error

    def document(self, name: str) -> dict[str, object]:
        """The JSON object in a variable."""
        value = self.text(name, what="a JSON object")
        try:
            document = json.loads(value)
        except ValueError as error:
            raise WrongSetting(f"{name}: must be a JSON object: {error}") from error
        if not isinstance(document, dict):
            raise WrongSetting(f"{name}={value[:80]!r}: must be a JSON object")
        return document


def _one_of(choices: tuple[str, ...]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]
