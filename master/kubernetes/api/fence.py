"""A fence around what is done for one document. Whatever is raised there is said with the document's name, and costs
nobody else anything (docs/adr/0027).

What a document is not is known before it is taken in (`shapes`, `validation`), with the field's path. This is the last
resort behind that, for what nobody thought of; hence the broad excepts.
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
def fenced(what: str, told: Callable[[str], None] | None = None) -> Iterator[None]:
    """`what`: the document's kind and name. `told` gets the sentence of what was wrong, with its path where known."""
    try:
        yield
    except WrongDocument as error:
        log.warning("%s is passed over: %s", what, error)
        _tell(what, told, str(error))
    except Exception as error:
        log.exception("%s is passed over: what it asks for has failed here (a bug of ours)", what)
        _tell(what, told, f"{_place(error)}: it could not be read: {said(error)}")


def _tell(what: str, told: Callable[[str], None] | None, sentence: str) -> None:
    if told is not None:
        try:
            told(sentence)
        except Exception:
            log.exception("that %s was passed over could not be told", what)


def said(error: BaseException) -> str:
    """A traceback's last line, as short as a sentence."""
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__


def _place(error: Exception) -> str:
    """The best that is known of the field: a missing one has its name in the error."""
    return f"spec ({error.args[0]})" if isinstance(error, KeyError) and error.args else "spec"


def name_of(kind: str, document: object) -> str:
    """For the log, whatever the document is."""
    try:
        return f"{kind} {shapes.identity_of(document)}"
    except WrongDocument:
        return f"a {kind} without a name"


def readable(kind: str, documents: Iterable[Document], shape: Shape) -> list[Document]:
    """Those that have this shape; of the others the log tells."""
    found = []
    for document in documents:
        with fenced(name_of(kind, document)):
            shapes.check(document, shape)
            found.append(document)
    return found
