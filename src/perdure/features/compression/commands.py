"""`perdure compress`: the output of a tool as a model would see it."""

from __future__ import annotations

from typing import Annotated, Literal

from perdure.cli.commands.run import argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.session.work import read_text
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output
    from perdure.context.sections.tokens import ScriptTokenCounter
    from perdure.features.compression.compress import compress


@command("compress")
async def compress_file(
    view: Output,
    file: Annotated[str, argument("A tool's output; - is stdin.")],
    level: Annotated[
        Literal["lossless", "full"], option("lossless keeps everything; full also leaves out what is typical.")
    ] = "full",
    budget: Annotated[int | None, option("Above this, full leaves something out.", "TOKENS", min=0)] = None,
) -> None:
    """Print a tool's output in fewer tokens, as an agent sees it."""
    text = read_text(file)
    compressed = compress(text, level=level, budget=budget, handle=file)
    count = ScriptTokenCounter().count
    before, after = count(text), count(compressed.text)
    shape = fields(compressed, "text", "kind", "form") | {"tokens_before": before, "tokens_after": after}
    view.show(shape, compressed.text)
    kind = f", {compressed.kind}" if compressed.kind else ""
    view.hint(f"{compressed.form}{kind}: about {after:,} of {before:,} tokens")
