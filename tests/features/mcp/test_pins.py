"""What a server says of its tools may change at any time; what agents are shown changes only when a person says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import DEFAULT_ORG, McpServerId
from perdure.core.specs import ToolSpec
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.units import approve_tools, sync_tools
from perdure.features.mcp.values import McpServer, ToolDefinition, ToolListing
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import AT, Contract
from tests.support.strategies import effort

units = Contract()

NAMES = ("read", "write")

# What happens: a listing (tool -> what it says of it, or None: it is not in it), or the approval of all that there is.
LISTINGS = st.fixed_dictionaries({name: st.none() | st.sampled_from(["a", "b", "c"]) for name in NAMES})
HAPPENINGS = st.lists(LISTINGS | st.just("approve"), min_size=1, max_size=8)


def _listing(said: Mapping[str, str | None]) -> ToolListing:
    return ToolListing(
        definitions=tuple(
            ToolDefinition(name=name, description=text, parameters={"type": "object", "properties": {}})
            for name, text in said.items()
            if text is not None
        )
    )


def _descriptions(tx: Tx) -> dict[str, str]:
    """What agents are shown of each tool."""
    specs: dict[str, ToolSpec] = {tool.spec.name: tool.spec for tool in tx.tools.list()}
    return {name: spec.description for name, spec in specs.items()}


@effort(12, 2000)
@given(trusted=st.booleans(), happenings=HAPPENINGS)
def test_what_agents_are_shown_of_a_tool_changes_only_by_approval(trusted: bool, happenings: list[Any]) -> None:
    """The first listing is approved with the server. Later a trusted server's new tools are shown as they first come;
    whatever was shown stays as it is until somebody approves what is said now."""

    async def story() -> None:
        store = InlineStore()
        server_id = McpServerId(units.ids.new("mcp_server"))
        server = McpServer(
            id=server_id,
            org_id=DEFAULT_ORG,
            name="files",
            transport="stdio",
            command="serve",
            trusted=trusted,
            created_at=AT,
            updated_at=AT,
        )
        await store.write(lambda tx: tx.of(Servers).add(server))
        first = True
        for what in happenings:
            before = await store.read(_descriptions)
            if what == "approve":
                await store.write(approve_tools, server_id, ids=units.ids, at=AT)
                continue
            await store.write(sync_tools, server_id, _listing(what), ids=units.ids, at=AT)
            after = await store.read(_descriptions)
            said = {f"files__{name}": text for name, text in what.items() if text is not None}

            assert {name: after.get(name) for name in before} == before
            new = {name: text for name, text in after.items() if name not in before}
            assert new.items() <= said.items()
            assert not new or first or trusted
            first = False
        await store.close()

    asyncio.run(story())
