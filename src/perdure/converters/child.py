"""The process in which one untrusted file is read, the file as stdin. In the sandbox that is `answer_to`.

Where there is none, it is `python -m perdure.converters.child REQUEST`, a process of the server's own user. It limits
itself before it looks at the file: seconds, memory, no files written, no core dump. The environment it is given is
empty but for the path of modules. Its answer on stdout is lines of JSON:

    {"progress": [done, total]}     any number of times
    {"text": "..."}                 the text in pieces
    {"document": {...}}             all else of it; the last line
    {"refused": "reason"}           instead of it
    {"missing": ["what", "extra"]}  instead of it
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
from typing import Any, BinaryIO

from perdure.converters.limits import Limits, Refusal
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ExtraMissing

PIECE_CHARS = 65_536

_LIBRARIES = {"pdf": "pypdf", "docx": "mammoth"}


def read_document(
    name: str, kind: FileKind, file: BinaryIO, limits: Limits, progress: Callable[[int, int], None]
) -> Document:
    """The document of `file`, in this process. Raises: Refusal, ExtraMissing."""
    match kind:
        case "pdf":
            from perdure.converters.pdf import pdf_document

            return pdf_document(name, file, limits, progress)
        case "docx":
            from perdure.converters.docx import docx_document

            return docx_document(name, file, limits)
        case "xlsx":
            from perdure.converters.xlsx import xlsx_document

            return xlsx_document(name, file, limits, progress)
        case "html":
            from perdure.converters.html import html_document

            return html_document(name, file.read(limits.file_bytes + 1), limits)
        case _:
            from perdure.converters.plain import plain_document

            return plain_document(name, kind, file.read(limits.file_bytes + 1), limits)


def answer_to(name: str, kind: FileKind, limits: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for the file on stdin, as plain values: a document, `refused` or `missing`. Each page prints a line
    `[done, total]`."""
    with suppress(OSError):
        os.nice(5)
    file = io.BytesIO(sys.stdin.buffer.read())  # archives need to seek, which a pipe can't
    try:
        document = read_document(
            name, kind, file, Limits(**limits), lambda done, total: print(f"[{done},{total}]", flush=True)
        )
    except Refusal as error:
        return {"refused": str(error)}
    except ExtraMissing as error:
        return {"missing": [error.what, error.extra]}
    except RecursionError:
        return {"refused": "it is nested too deeply"}
    return {
        "text": document.text,
        "page_starts": list(document.page_starts),
        "title": document.title,
        "warnings": list(document.warnings),
    }


def main() -> None:
    """Read the request, convert, answer."""
    request = json.loads(sys.argv[1])
    limits = Limits(**request["limits"])
    # Imported before the limits: an import that fails for lack of memory looks like a missing library.
    with suppress(ImportError):
        importlib.import_module(_LIBRARIES.get(request["kind"], "json"))
    _confine(limits)
    out = sys.stdout.buffer

    def answer(**line: Any) -> None:
        out.write(json.dumps(line).encode("ascii") + b"\n")
        out.flush()

    try:
        document = read_document(
            request["name"],
            request["kind"],
            sys.stdin.buffer,
            limits,
            lambda done, total: answer(progress=[done, total]),
        )
    except Refusal as error:
        answer(refused=str(error))
    except ExtraMissing as error:
        answer(missing=[error.what, error.extra])
    except MemoryError:
        answer(refused=f"it needs more than {limits.memory_bytes:,} bytes of memory, the limit")
    except RecursionError:
        answer(refused="it is nested too deeply")
    else:
        for at in range(0, len(document.text), PIECE_CHARS):
            answer(text=document.text[at : at + PIECE_CHARS])
        answer(
            document={
                "page_starts": document.page_starts,
                "title": document.title,
                "warnings": document.warnings,
            }
        )


def _confine(limits: Limits) -> None:
    """Limit this process as far as the system can; the parent's time limit ends it in any case."""
    import resource

    def limit(kind: int, soft: int, hard: int) -> None:
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, hard))

    cpu_s = max(1, round(limits.cpu_s))
    limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
    limit(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
    limit(resource.RLIMIT_CORE, 0, 0)
    limit(resource.RLIMIT_FSIZE, 0, 0)
    limit(resource.RLIMIT_NPROC, 0, 0)
    with suppress(OSError):
        os.nice(5)
    signal.alarm(max(1, round(limits.wall_s) + 5))  # in case the parent has died


if __name__ == "__main__":
    main()
