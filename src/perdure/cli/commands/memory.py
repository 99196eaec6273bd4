"""`perdure memory`: the blocks of an agent and their versions. The chat shows the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from perdure.cli.commands.run import LastAgent, argument, command, for_work, option

if for_work(__name__):
    import asyncio

    from rich.text import Text

    from perdure.cli.session import work
    from perdure.cli.session.agent_choice import chat_command, shell_word
    from perdure.cli.views.json import block_shape, version_shape
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.text import blocks_view, versions_view
    from perdure.cli.views.view import Output, visible
    from perdure.core.blocks import Block
    from perdure.core.errors import PerdureError
    from perdure.library.agent import AsyncAgent

Label = Annotated[str, argument("Label of the block, such as human.", "LABEL")]


@command("memory list")
async def list_blocks(view: Output, agent: LastAgent) -> None:
    """List the memory blocks of an agent with their values."""
    show_blocks(view, await agent.blocks.list())
    view.hint("`perdure memory history LABEL` shows how a block came to be what it is.")


@command("memory show")
async def show_block(view: Output, label: Label, agent: LastAgent) -> None:
    """Show a memory block."""
    show_blocks(view, [await agent.blocks.get(label)])
    view.hint(
        f"`perdure memory history {shell_word(label)} {shell_word(agent.name)}` shows how it came to be what it is."
    )


@command("memory history")
async def history(view: Output, label: Label, agent: LastAgent) -> None:
    """Show the versions of a memory block: who wrote each, and the difference."""
    await show_versions(view, agent, label)
    view.hint(
        f"`perdure memory restore {shell_word(label)} N {shell_word(agent.name)}` brings the value of version N back."
    )


@command("memory edit", change=True)
async def edit_block(
    view: Output,
    label: Label,
    agent: LastAgent,
    text: Annotated[str | None, option("The new value; - reads stdin. By default your editor opens.", "TEXT")] = None,
) -> None:
    """Change the value of a memory block, in the editor that VISUAL or EDITOR names."""
    before, file = await agent.blocks.get(label), None
    if text is None:
        value, file = await asyncio.to_thread(work.edit_in_file, label, before.value)
    else:
        value = work.read_text(work.STDIN).removesuffix("\n") if text == work.STDIN else text
    try:
        block = await agent.blocks.update(label, value, expected=before.version)
    except PerdureError:
        if file is not None:
            view.note(f"What you wrote is in {file}.")
        raise
    if file is not None:
        file.unlink(missing_ok=True)
    if block.version == before.version:
        view.show({"block": block_shape(block), "diff": ""}, Text("Nothing was changed."))
        return
    diff = (await agent.blocks.history(label, limit=1))[0].diff
    view.show({"block": block_shape(block), "diff": diff}, diff_view(diff))
    words = f"{shell_word(label)} {before.version} {shell_word(agent.name)}"
    view.hint(f"`perdure memory restore {words}` brings the value before back.")


@command("memory restore", change=True)
async def restore(
    view: Output,
    label: Label,
    version: Annotated[int, argument("Its number in the history.", "VERSION", min=0)],
    agent: LastAgent,
) -> None:
    """Bring back the value of an earlier version of a block, as a new version."""
    await restore_version(view, agent, label, version)
    view.hint(f"The agent sees it from the next message on: `{chat_command(agent)}`.")


def show_blocks(view: Output, blocks: Sequence[Block]) -> None:
    """Show memory blocks, or that there are none."""
    parts = blocks_view(blocks) if blocks else [Text("This agent has no memory blocks.")]
    view.show({"blocks": [block_shape(block) for block in blocks]}, *parts)


async def show_versions(view: Output, agent: AsyncAgent, label: str) -> None:
    """Show the versions of a block."""
    versions = await agent.blocks.history(label)
    shape = {"label": label, "versions": [version_shape(version) for version in versions]}
    view.show(shape, *versions_view(label, versions, agent.id))


async def restore_version(view: Output, agent: AsyncAgent, label: str, version: int) -> None:
    """Give a block the value of an earlier version, and show the difference."""
    before = await agent.blocks.get(label)
    block = await agent.blocks.restore(label, version)
    changed = block.version != before.version
    diff = (await agent.blocks.history(label, limit=1))[0].diff if changed else ""
    state = f"again, as version {block.version}" if changed else "already"
    view.show(
        {"restored": version, "block": block_shape(block), "diff": diff},
        Text(f"{visible(block.label)} has the value of version {version} {state}."),
        *([diff_view(diff)] if diff else []),
    )
