"""Replaces texts of a recording that may hold a secret by placeholders; the core still decides the same.

The laws:

* *Only what is allowed stays*: names of members, nodes and addresses in fields that are declared to hold them
  (`fields`), words of Outrider's own source (`vocabulary`), frames of tracebacks without their folders, and numbers.
* *Equal texts get equal placeholders, and different texts different ones*, because the core compares errors, paths and
  patterns. They are counted in letters: the core ignores digits when it compares errors.
* *A placeholder of an error keeps the phrases for which the core searches*, as `<redacted-c: connection refused>`: they
  are constants of our source, and show whether an error is an effect of another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from outrider.master.core.faults import error_signature, node_exclusion
from outrider.master.core.hangs.evidence_reader import FRAME
from outrider.master.recording import fields, vocabulary

NAME = re.compile(r"(?!.*//)[A-Za-z0-9_*][\w.:/*-]{0,316}\Z", re.ASCII)
"""Ids, nodes, addresses with their port, keys of deadlines; no URL, and nothing with white space or an `@`."""
TYPE = re.compile(r"[A-Za-z_][\w.]{0,120}\Z", re.ASCII)
PLACE = re.compile(r"(?P<folder>.*/)?(?P<file>[^/\s]{1,100}):(?P<line>\d+|\?+) (?P<name>[\w<>.]{1,100})\Z", re.ASCII)
LIBRARY = re.compile(r"/(lib(64)?/python\d[.\d]*|site-packages|dist-packages|training_hooks)/")
CRON = re.compile(
    r"(([\d*/,\-?#LW]|MON|TUE|WED|THU|FRI|SAT|SUN|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)+( |\Z)){1,7}\Z",
    re.IGNORECASE,
)
NUMBER = re.compile(r"[-+]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})(e[-+]?\d{1,3})?%?\Z", re.IGNORECASE)
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)\Z")
SHORT_NUMBER = re.compile(r"\d{1,3}(\.\d{1,6})?\Z")
MEMBER = re.compile(r"(worker|master|chief|ps|evaluator)-\d{1,9}\Z")
DIGITS = re.compile(r"\d+")
PLACEHOLDER = re.compile(r"<redacted-[a-z]+[^<>]*>")
ANSWERS = {"stack": fields.TRACEBACK, "frame": fields.FRAME, "op": fields.NAME, "group": fields.NAME, "id": fields.NAME,
           "error": fields.ERROR}  # fmt: skip
"""The kinds of texts in a member's answer, by their keys: those of the fields that the core makes of them."""
FIRST = "Traceback (most recent call last):"
LETTERS = "bfgjkpqtvwyz"
"""No word for which the core searches in an error is made of these alone."""
PHRASES = (
    "address already in use", "EADDRINUSE", "Duplicate GPU detected", "Could not start gRPC server",
    "EOF when reading a line", "gloo/transport", "connection closed by peer", "connection reset by peer",
    "connection refused", "broken pipe", "ncclRemoteError", "ncclSystemError", "NCCL error", "NCCL watchdog",
    "socket timeout", "socket timed out", "recvValue failed", "store timeout", "monitoredBarrier",
    "ProcessGroupNCCL timeout", "CUDA", "out of memory", "No space left on device", "disk quota",
    "Read-only file system", "Input/output error", "Stale file handle", "temporarily unavailable",
    "name resolution", "timed out", "too many open files", "connection", "service unavailable", "try again",
    "killed by signal", "DataLoader worker", "exited unexpectedly", "uncorrectable", "hardware error",
    "unspecified launch failure", "fallen off the bus", "device lost", "device unavailable", "busy or unavailable",
    "no CUDA-capable device", "driver error",
)  # fmt: skip
"""Phrases of errors that the core knows; a placeholder keeps those that its text has."""
QUESTIONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (error_signature.PORT_TAKEN, "address already in use"),
    (error_signature.ONE_GPU, "Duplicate GPU detected"),
    (error_signature.EFFECT_TEXT, "connection closed by peer"),
    (node_exclusion.OF_THE_MACHINE, "hardware error"),
    (error_signature.OUTSIDE, "try again"),
)
"""What the core asks about an error's text, each with a phrase for which the answer is yes."""
PREFIXES = (*node_exclusion.REFUSED_BY_NODE, "Restarted")
"""The beginnings of a pod's reason for which the core looks."""
REASONS = (
    "Started", "Deleted", "Evicted", "Preempting", "Preempted",
    "PreemptionByScheduler", "TerminationByKubelet", "EvictionByEvictionAPI", "DeletionByTaintManager", "OOMKilled",
    "Error", "Completed", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CrashLoopBackOff",
    "ContainerCreating", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PodInitializing",
    "Unschedulable", "SchedulingGated", "NodeLost", "NodeShutdown", "Terminated", "Shutdown",
    "DeadlineExceeded", "DisruptionTarget",
)  # fmt: skip
"""The reasons of a pod, in Kubernetes' words, with which a text may begin."""


class Scrubber:
    """The placeholders of one recording."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, str], str] = {}
        self.names: set[str] = set()
        """Names of members, pods and nodes, which may also stand in documents without declared fields."""
        self._by_kind: dict[str, Callable[[str], str]] = {
            fields.TEXT: self.text, fields.NAME: self.name, fields.NOTED: self.noted, fields.SENTENCE: self.sentence,
            fields.ERROR: self.error, fields.SIGNATURE: self.signature, fields.REASON: self.reason,
            fields.TYPE: self.type, fields.FRAME: self.frame, fields.TRACEBACK: self.traceback,
            fields.ANSWER: self.answer, fields.NUMBER: self.number, fields.CRON: self.cron,
            fields.LEFT_OUT: lambda _value: "",
        }  # fmt: skip

    def of_kind(self, kind: str, value: str) -> str:
        """The text that is recorded for a field of this kind (`fields`)."""
        return self._by_kind[kind](value)

    def text(self, value: str) -> str:
        """A word of our source, or a placeholder."""
        if not value or value in vocabulary.words() or SHORT_NUMBER.match(value) or PLACEHOLDER.fullmatch(value):
            return value
        return f"<redacted-{self._letter('', value)}>"

    def name(self, value: str) -> str:
        return value if not value or NAME.match(value) else self.text(value)

    def noted(self, value: str) -> str:
        """A name that may also stand in a document."""
        if NAME.match(value):
            self.names.add(value)
        return self.name(value)

    def untyped(self, value: str) -> str:
        """A text of a document without declared fields, as an earlier master's status."""
        if value in self.names or MEMBER.match(value) or MOMENT.match(value):
            return value
        return self.text(value)

    def sentence(self, value: str) -> str:
        """A sentence of the core: words of our source, names, numbers and frames stay."""
        return " ".join(self._word(each) for each in value.split(" "))

    def _word(self, value: str) -> str:
        word = value.strip(".,;:()[]{}'\"")
        is_ours = word in vocabulary.single_words() or word in self.names or MEMBER.match(word) or NUMBER.match(word)
        if not word or is_ours or PLACEHOLDER.search(value) or re.fullmatch(r"[\w-]{1,60}\.py:\d+", word):
            return value
        return value.replace(word, self.text(word))

    def error(self, value: str) -> str:
        """The message of an exception: errors that the core takes for the same have one placeholder but for the number
        in it, and the core finds in it what it finds in the message."""
        key = error_signature.NUMBERS.sub("#", value)
        if not value or PLACEHOLDER.fullmatch(value) or (value in vocabulary.words() and "#" not in key):
            return value
        made = self._with_phrases("error", key)
        if "#" not in key:
            return made
        for number in ("0", "503"):  # the core knows some numbers, as those of HTTP
            numbered = f"{made[:-1]} {number}>" if ":" in made else f"{made[:-1]}: {number}>"
            if bool(error_signature.OUTSIDE.search(numbered)) == bool(error_signature.OUTSIDE.search(value)):
                break
        return numbered

    def signature(self, value: str) -> str:
        """`Type|message without numbers|frame`, as `error_signature.signature` makes it."""
        kind, bar, rest = value.partition("|")
        message, bar, place = rest.rpartition("|")
        if not bar:
            return value if re.fullmatch(r"exit code (\d{1,3}|None)", value) else self.text(value)
        return "|".join((self.type(kind), error_signature.NUMBERS.sub("#", self.error(message)), self.frame(place)))

    def reason(self, value: str) -> str:
        """Why a pod is as it is: the reason in Kubernetes' words stays, its message does not."""
        if not value or value in vocabulary.words() or PLACEHOLDER.search(value):
            return value
        first = next((each for each in PREFIXES if value.startswith(each)), "")
        first = first or next((each for each in REASONS if re.match(rf"{each}(?![A-Za-z])", value)), "")
        rest = value[len(first) :]
        made = self._with_phrases("reason", DIGITS.sub("", rest)) if rest else ""
        return f"{first}: {made}" if first and made else first or made

    def type(self, value: str) -> str:
        return value if not value or TYPE.match(value) else self.text(value)

    def number(self, value: str) -> str:
        return value if NUMBER.match(value) else self.text(value)

    def cron(self, value: str) -> str:
        return value if CRON.match(value) else self.text(value)

    def frame(self, value: str) -> str:
        """`file:line function`; the folder stays only within a library."""
        match = PLACE.match(value)
        if match is None:
            return self.text(value)
        return f"{self.folder(match['folder'] or '')}{match['file']}:{match['line']} {match['name']}"

    def folder(self, value: str) -> str:
        library = LIBRARY.search(value)
        inner = value[library.start() :] if library else "/" if value else ""
        outer = value[: len(value) - len(inner)]
        return f"<redacted-{self._letter('', outer)}>{inner}" if outer and not PLACEHOLDER.fullmatch(outer) else value

    def traceback(self, value: str) -> str:
        """The frames and the type of the exception. Lines of source and messages are left out; without any frame, it is
        output of the script."""
        kept = [line for line in map(self._line_of_traceback, value.splitlines()) if line]
        if not any(FRAME.match(line) or line.startswith("  File ") for line in kept):
            return self.text(value)
        return "\n".join(kept)

    def _line_of_traceback(self, line: str) -> str:
        if line.startswith(FIRST):
            return FIRST
        if match := re.match(r"(Current thread|Thread) 0x[0-9a-f]+", line):  # without its name
            return f"{match[0]} (most recent call first):"
        if match := re.match(r'\s*File "([^"]*)", line (\d+|\?+),? in (.*)$', line):
            file, number, name = match.groups()
            place = self.frame(f"{file}:{number} {name}")
            path, _, rest = place.rpartition(":")
            comma = "," if f"line {number}," in line else ""
            return f'  File "{path}", line {number}{comma} in {rest.partition(" ")[2]}' if path else ""
        kind, colon, message = line.partition(": ")
        if line[:1].isspace() or not TYPE.match(kind) or not (colon or "." in kind or kind.endswith(("Error", "Exit"))):
            return ""
        return f"{kind}: {self.error(message)}" if colon else kind

    def answer(self, value: str) -> str:
        """A member's answer to a request: stacks or collectives, as JSON (`hangs.evidence_reader`)."""
        try:
            return json.dumps(self._answer(json.loads(value), ""))
        except (ValueError, RecursionError):
            return self.text(value)

    def _answer(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: self._answer(each, name) for name, each in value.items() if name in vocabulary.words()}
        if isinstance(value, list):
            return [self._answer(each, key) for each in value]
        if isinstance(value, str):
            return self._by_kind[ANSWERS.get(key, fields.TEXT)](value)
        return value

    # -- placeholders -----------------------------------------------------------------------------------------------
    def _with_phrases(self, kind: str, key: str) -> str:
        lower, kept = key.lower(), ""
        for phrase in PHRASES:
            if phrase.lower() in lower and phrase.lower() not in kept.lower():
                kept += f", {phrase}" if kept else phrase
        for asked, phrase in QUESTIONS:
            if asked.search(key) and not asked.search(kept):
                kept += f", {phrase}" if kept else phrase
        letters = self._letter(kind, key)
        return f"<redacted-{letters}: {kept}>" if kept else f"<redacted-{letters}>"

    def _letter(self, kind: str, value: str) -> str:
        found = self._letters.get((kind, value))
        if found is None:
            found = self._letters[kind, value] = letters(len(self._letters))
        return found


def letters(number: int) -> str:
    """b, f, … z, bb, bf, …"""
    found, number = "", number + 1
    while number:
        number, rest = divmod(number - 1, len(LETTERS))
        found = LETTERS[rest] + found
    return found
