"""What a process that reads a file may answer, trusted as little as the file."""

from __future__ import annotations

from perdure.converters.limits import Limits, Refused
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ExtraMissing

__all__ = ["document_of"]


def document_of(answer: object, name: str, kind: FileKind, limits: Limits) -> Document:
    """The document in an answer of `answer_to`.

    Raises: Refused: it was refused, is too long, or the answer is none; ExtraMissing.
    """
    match answer:
        case {
            "text": str(text),
            "page_starts": list(starts),
            "title": str(title),
            "warnings": list(warnings),
        } if all(type(start) is int for start in starts):
            limits.check_text(len(text))
            return Document(
                name=name,
                kind=kind,
                text=text,
                page_starts=tuple(starts),
                title=title,
                warnings=tuple(map(str, warnings)),
            )
        case {"refused": str(reason)}:
            raise Refused(reason)
        case {"missing": [str(what), str(extra)]}:
            raise ExtraMissing(what, extra=extra)
        case _:
            raise Refused("the converter answered what it should not")
