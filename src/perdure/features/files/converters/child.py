"""The process in which one untrusted file is read, the file as stdin. In the sandbox that is `answer_to`.

Where there is none, it is `python -m perdure.features.files.converters.child REQUEST`, a process of the server's own
user. It limits itself before it looks at the file: seconds, memory, no files written, no core dump. The environment it
is given is empty but for the path of modules. It prints lines of JSON: `[done, total]` any number of times, then the
answer.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

from perdure.core.documents import Document, FileKind
from perdure.core.errors import ExtraMissing
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits

MALFORMED = "the converter answered what it should not"
_LIBRARIES = {"pdf": "pypdf", "docx": "mammoth"}


def read_document(
    name: str, kind: FileKind, file: BinaryIO, limits: ReadLimits, progress: Callable[[int, int], None]
) -> Document:
    """The document of `file`, in this process. Raises: FileUnreadable, ExtraMissing."""
    match kind:
        case "pdf":
            from perdure.features.files.converters.pdf import pdf_document

            return pdf_document(name, file, limits, progress)
        case "docx":
            from perdure.features.files.converters.docx import docx_document

            return docx_document(name, file, limits)
        case "xlsx":
            from perdure.features.files.converters.xlsx import xlsx_document

            return xlsx_document(name, file, limits, progress)
        case "html":
            from perdure.features.files.converters.html import html_document

            return html_document(name, file.read(limits.file_bytes + 1), limits)
        case _:
            from perdure.features.files.converters.plain import plain_document

            return plain_document(name, kind, file.read(limits.file_bytes + 1), limits)


def answer_to(name: str, kind: FileKind, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Read the file on stdin, and return the fields of its document, or `refused` with the reason, or `missing` with
    the extra to install. Print `[done, total]` for each page."""
    with suppress(OSError):
        os.nice(5)
    file = io.BytesIO(sys.stdin.buffer.read())  # archives need to seek, which a pipe can't
    try:
        document = read_document(
            name, kind, file, ReadLimits(**limits), lambda done, total: print(f"[{done},{total}]", flush=True)
        )
    except FileUnreadable as error:
        return {"refused": str(error)}
    except ExtraMissing as error:
        return {"missing": [error.what, error.extra]}
    except RecursionError:
        return {"refused": "it is nested too deeply"}
    return asdict(document)


def document_of(answer: object, name: str, kind: FileKind, limits: ReadLimits) -> Document:
    """The document in an answer of `answer_to`, which is trusted as little as the file.

    Raises: FileUnreadable: the file is refused, the text is too long, or the answer is malformed; ExtraMissing.
    """
    match answer:
        case {"text": str(text), "page_starts": list(starts), "title": str(title), "warnings": list(warnings)} if all(
            type(start) is int for start in starts
        ):
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
            raise FileUnreadable(reason)
        case {"missing": [str(what), str(extra)]}:
            raise ExtraMissing(what, extra=extra)
        case _:
            raise FileUnreadable(MALFORMED)


def main() -> None:
    """Read the request, convert, answer."""
    request = json.loads(sys.argv[1])
    limits = ReadLimits(**request["limits"])
    # Imported before the limits: an import that fails for lack of memory looks like a missing library.
    with suppress(ImportError):
        importlib.import_module(_LIBRARIES.get(request["kind"], "json"))
    _confine(limits)
    try:
        answer = json.dumps(answer_to(**request), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except MemoryError:
        refused = {"refused": f"it needs more than {limits.memory_bytes:,} bytes of memory, the limit"}
        answer = json.dumps(refused).encode()
    sys.stdout.buffer.write(answer + b"\n")


def _confine(limits: ReadLimits) -> None:
    """Limit this process as far as the system can; the parent's time limit ends it in any case."""
    import resource

    cpu_s = max(1, round(limits.cpu_s))
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NPROC, 0, 0),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, hard))
    signal.alarm(max(1, round(limits.wall_s) + 5))  # in case the parent has died


if __name__ == "__main__":
    main()
