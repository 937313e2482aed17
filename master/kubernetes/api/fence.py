"""Fences the handling of one document, so that an error in it affects no other document.

The error is logged with the document's name (docs/adr/0027). Malformed documents are normally found earlier (`shapes`,
`validation`), with the path of the field. The fence is the last resort for unforeseen errors, hence its broad excepts.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.shapes import Shape, WrongDocument

Found = TypeVar("Found")

log = logging.getLogger("fence")


@contextlib.contextmanager
def fenced(what: str, report: Callable[[str], None] | None = None) -> Iterator[None]:
    """`what`: kind and name of the document. `report` is called with the error, which names the field if known."""
    try:
        yield
    except WrongDocument as error:
        log.warning("%s is ignored: %s", what, error)
        _report(what, report, str(error))
    except Exception as error:
        log.exception("%s is ignored: handling it failed (a bug in Outrider)", what)
        _report(what, report, f"{_place(error)}: reading it failed: {summary(error)}")


def _report(what: str, report: Callable[[str], None] | None, sentence: str) -> None:
    if report is not None:
        try:
            report(sentence)
        except Exception:
            log.exception("reporting that %s is ignored failed", what)


def summary(error: BaseException) -> str:
    """Type and message of the error, as in a traceback's last line, cut to 200 characters."""
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__


def _place(error: Exception) -> str:
    """The path of the field as far as it is known: a KeyError names the missing field."""
    return f"spec ({error.args[0]})" if isinstance(error, KeyError) and error.args else "spec"


def name_of(kind: str, document: object) -> str:
    """The document's kind and name for the log, whatever its content."""
    try:
        return f"{kind} {shapes.identity_of(document)}"
    except WrongDocument:
        return f"a {kind} without a name"


def readable(kind: str, documents: Iterable[Document], shape: Shape) -> list[Document]:
    """The documents that have this shape; the others are logged."""
    found = []
    for document in documents:
        with fenced(name_of(kind, document)):
            shapes.check(document, shape)
            found.append(document)
    return found
