"""Batches in the engine: their runs go on when the process that accepted them is gone."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, BatchId
from perdure.core.messages import Text
from perdure.core.runs import Batch, RunFilter
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.batch import accept_batch
from perdure.library.parts.checks import Page
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds

MODEL = "test/scripted"


async def test_one_look_takes_up_all_runs_of_a_batch() -> None:
    """Also those that wait behind others of it: they follow one another without a further look."""
    clock = FakeClock()
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, clock=clock, ids=SequentialIds()
    ) as perdure:
        agents = [(await perdure.create_agent(name, model=MODEL)).id for name in ("ann", "bob")]
        batch_id = await accepted_elsewhere(perdure, [agent_id for agent_id in agents for _ in range(5)])
        clock.advance(3_600.0)
        await perdure.app.runner.recover()
        async with asyncio.timeout(10):
            for run in await perdure.runs.page_of_runs(RunFilter(batch_id=batch_id), Page(99, ascending=True)):
                assert [sent async for sent in perdure.runs.follow_run(run)]

        assert (await perdure.jobs.get_batch(batch_id)).runs == {"completed": 10}


async def accepted_elsewhere(perdure: AsyncPerdure, agents: list[AgentId]) -> BatchId:
    """A batch of one message to each agent, by a process that is gone."""
    app: Any = perdure.app
    batch = Batch(id=BatchId(app.ports.ids.new("job")), digest="", created_at=app.ports.clock.now())
    says = (NewMessage((Text("hello"),)),)
    requests = [
        await perdure.agent_of(agent_id).prepare(RunRequest(agent_id=agent_id, messages=says)) for agent_id in agents
    ]
    await app.ports.store.write(accept_batch, batch, requests, app.ports.inputs())
    return batch.id
