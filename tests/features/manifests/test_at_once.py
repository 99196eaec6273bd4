"""Of two that apply files at once, each change is made once, and what nobody has looked at is not made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.core.errors import Conflict
from tests.features.manifests.office_files import write_office
from tests.support.library import open_async


async def test_two_that_apply_at_once_make_everything_once(tmp_path: Path) -> None:
    """Whoever is second finds all as the files say."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as one, await open_async(tmp_path / "store.db") as two:
        done = await asyncio.gather(one.manifests.apply(file), two.manifests.apply(file))
        agents = [agent.name for agent in await one.agents()]

        assert sorted(len(plan.changes) for plan in done) == [0, 10]
        assert sorted(name for name in agents if name in ("ada", "bob", "cleo")) == ["ada", "bob", "cleo"]


async def test_what_has_changed_since_the_plan_is_not_written_over(tmp_path: Path) -> None:
    """A block that is edited while a person looks at the plan: nothing is applied."""
    file = write_office(tmp_path)
    async with await open_async(tmp_path / "store.db") as library:
        await library.manifests.apply(file)
        write_office(tmp_path, file.read_text().replace("She writes.", "She reads."))
        plan = await library.manifests.plan(file)
        ada = await library.agent("ada")
        await ada.blocks.update("persona", "I am new.")
        with pytest.raises(Conflict):
            await library.manifests.apply(file, plan=plan)

        assert (await ada.blocks.get("persona")).value == "I am new."
        assert (await ada.state()).agent.description == "She writes."
