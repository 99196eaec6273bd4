"""Changes at once: two pushes, and a push while the agent edits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import NewBlock
from perdure.core.errors import PerdureError
from perdure.testing import ScriptedModel
from tests.features.memory_git.test_folder import commit
from tests.support.two_apps import STORES, address_of, two_apps


@pytest.mark.parametrize("kind", STORES)
async def test_of_two_pushes_at_once_one_is_refused(kind: str, tmp_path: Path) -> None:
    """It says so, and nothing of it is stored; the agent's own edits stay."""
    async with two_apps(await address_of(kind, tmp_path), ScriptedModel()) as (first, second):
        agent = await first.create_agent("ann")
        await first.agent_of(agent.id).blocks.add(NewBlock(label="notes", value="a"))
        sides = [(first, tmp_path / "one"), (second, tmp_path / "two")]
        for library, folder in sides:
            await library.agent_of(agent.id).memory_git.checkout(folder)
            commit(folder, f"edit {folder.name}", system__notes=f"---\n---\n\n{folder.name}\n")

        async def edit() -> None:
            await first.agent_of(agent.id).blocks.add(NewBlock(label="own", value="kept"))

        pushes = [library.agent_of(agent.id).memory_git.push(folder) for library, folder in sides]
        *results, _ = await asyncio.gather(*pushes, edit(), return_exceptions=True)

        refused = [isinstance(one, PerdureError) for one in results]
        values = {block.label: block.value for block in await first.agent_of(agent.id).blocks.list()}
        assert sum(refused) >= 1, results
        assert values["own"] == "kept"
        assert values["notes"] in {
            "a",
            *(folder.name for (_, folder), no in zip(sides, refused, strict=True) if not no),
        }
