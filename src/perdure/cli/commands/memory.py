"""`perdure memory`: the blocks of an agent, their versions, and an earlier value back; `/memory` shows the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from perdure.cli.run import LastAgent, argument, command, for_work

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.chat.render import diff_view
    from perdure.cli.views.json import block_shape, version_shape
    from perdure.cli.views.text import blocks_view, versions_view
    from perdure.cli.views.view import View, visible
    from perdure.cli.work import get_agent, named_agent, no_store, open_store
    from perdure.core.blocks import Block
    from perdure.library.agent import AsyncAgent

Label = Annotated[str, argument("Label of the block, such as human.", "LABEL")]

NO_STORE = "`perdure` makes an agent and starts the chat"


@command("memory list")
async def list_blocks(view: View, agent: LastAgent = None) -> None:
    """List the memory blocks of an agent with their values."""
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        show_blocks(view, await (await get_agent(view, perdure, agent)).blocks.list())
        view.hint("`perdure memory history LABEL` shows how a block came to be what it is.")


@command("memory show")
async def show_block(view: View, label: Label, agent: LastAgent = None) -> None:
    """Show a memory block."""
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        show_blocks(view, [await (await get_agent(view, perdure, agent)).blocks.get(label)])
        view.hint(f"`perdure memory history {label}` shows how it came to be what it is.")


@command("memory history")
async def history(view: View, label: Label, agent: LastAgent = None) -> None:
    """Show the versions of a memory block: who wrote each, and the difference."""
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        await show_versions(view, await get_agent(view, perdure, agent), label)
        view.hint(f"`perdure memory restore {label} N` brings the value of version N back.")


@command("memory restore")
async def restore(
    view: View,
    label: Label,
    version: Annotated[int, argument("Its number in the history.", "VERSION", min=0)],
    agent: LastAgent = None,
) -> None:
    """Bring the value of an earlier version of a block back, as a new version."""
    async with named_agent(view, agent, change=True, empty=no_store(NO_STORE)) as (_, owner):
        await restore_version(view, owner, label, version)
        view.hint(f"The agent sees it from the next message on: `{chat_command(owner)}`.")


def show_blocks(view: View, blocks: Sequence[Block]) -> None:
    """Show memory blocks, or that there are none."""
    parts = blocks_view(blocks) if blocks else [Text("This agent has no memory blocks.")]
    view.show({"blocks": [block_shape(block) for block in blocks]}, *parts)


async def show_versions(view: View, agent: AsyncAgent, label: str) -> None:
    """Show the versions of a block."""
    versions = await agent.blocks.history(label)
    shape = {"label": label, "versions": [version_shape(version) for version in versions]}
    view.show(shape, *versions_view(label, versions, agent.id))


async def restore_version(view: View, agent: AsyncAgent, label: str, version: int) -> None:
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
