"""Check the answer of a process that reads a file: it is trusted as little as the file."""

from __future__ import annotations

from perdure.converters.limits import Limits, Refusal
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ExtraMissing


def document_of(answer: object, name: str, kind: FileKind, limits: Limits) -> Document:
    """The document in an answer of `answer_to`.

    Raises: Refusal: the file is refused, the text is too long, or the answer is malformed; ExtraMissing.
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
            raise Refusal(reason)
        case {"missing": [str(what), str(extra)]}:
            raise ExtraMissing(what, extra=extra)
        case _:
            raise Refusal("the converter answered what it should not")
