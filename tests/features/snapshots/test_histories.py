"""After random histories, a snapshot's next request is that of the original, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.features.snapshots.histories import (
    BEFORE,
    EVERYTHING,
    next_request,
    open_world,
    without_counts,
    without_ids,
    without_versions,
)

COUNT = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COUNT))
async def test_clones_and_restores_send_what_the_original_sends(tmp_path: Path, seed: int) -> None:
    """So do a clone, an agent of the file, and the agent itself, brought back after more has happened."""
    world = await open_world(tmp_path / "perdure.db", seed)
    agent, choose = world.agent, world.random
    async with world.perdure:
        for _ in range(choose.randrange(3, 12)):
            await world.do(choose.choice(BEFORE))
        kept = await agent.snapshots.make(note="here")
        at = world.clock.now()
        clone = await agent.snapshots.clone("clone")
        loaded = await world.perdure.load_snapshot(await agent.snapshots.document(kept.number), name="loaded")
        original = await next_request(world, agent, at)
        of_clone = await next_request(world, world.perdure.agent_of(clone.agent_id), at)
        of_loaded = await next_request(world, world.perdure.agent_of(loaded.agent_id), at)
        for _ in range(choose.randrange(1, 6)):
            await world.do(choose.choice(EVERYTHING))
        said = [(one.id, one.text) for one in await agent.messages()]
        restored = await agent.snapshots.restore(kept.number)
        again = await next_request(world, agent, at)
        await agent.snapshots.restore(restored.undo)
        undone = [(one.id, one.text) for one in await agent.messages()]

        ids = (agent.id, clone.agent_id, loaded.agent_id)
        assert (clone.left, loaded.left, restored.left) == ([], [], []), world.done
        assert without_ids(of_clone, *ids) == without_ids(original, *ids), world.done
        assert without_counts(without_ids(of_loaded, *ids)) == without_counts(without_ids(original, *ids)), world.done
        assert without_versions(again) == without_versions(original), world.done
        assert undone == said, world.done
