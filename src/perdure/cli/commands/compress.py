"""`perdure compress`: the output of a tool as a model would see it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from perdure.cli.run import argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.views.view import View
    from perdure.context import compress
    from perdure.context.window.tokens import ScriptTokenCounter
    from perdure.core.errors import InvalidInput


@command("compress")
async def compress_file(
    view: View,
    file: Annotated[str, argument("What a tool printed; -: stdin.")],
    level: Annotated[
        Literal["lossless", "full"], option("lossless keeps everything; full also leaves out what is typical.")
    ] = "full",
    budget: Annotated[int | None, option("Above this, full leaves something out.", "TOKENS", min=0)] = None,
) -> None:
    """Print a tool's output in fewer tokens, as an agent sees it."""
    try:
        text = _read(file).decode()
    except OSError as error:
        raise InvalidInput(f"{file!r} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file!r} is no text in UTF-8: byte {error.start + 1} is none") from error
    compressed = compress(text, level=level, budget=budget, handle=file)
    count = ScriptTokenCounter().count
    before, after = count(text), count(compressed.text)
    shape = {
        "text": compressed.text,
        "kind": compressed.kind,
        "form": compressed.form,
        "tokens_before": before,
        "tokens_after": after,
    }
    view.show(shape, compressed.text)
    kind = f", {compressed.kind}" if compressed.kind else ""
    view.hint(f"{compressed.form}{kind}: about {after:,} of {before:,} tokens")


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
