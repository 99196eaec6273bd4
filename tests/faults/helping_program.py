"""A program whose agent has three helpers do each task, one of them a fork: `helping_program STORE FIRST`, until it is
killed.

It prints `ready`, and then the number of each task that is done.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from perdure import ModelReply, ModelRequest, Perdure, Settings
from perdure.core.messages import ToolCall
from perdure.core.models import ModelDelta
from perdure.testing import says

HELPERS = ("general", "plan", "fork")
TASK = "Task {}"


class Sharing:
    """A model whose agent has three helpers do what it is asked, and says what all of them said. Helpers take their
    time, so that most kills come while they work."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Answer as a helper, or as the agent."""
        newest = request.messages[-1]
        task = newest.text.rpartition("\n")[2]
        if newest.role == "tool":
            results = [message.text.partition("\n")[0] for message in request.messages[-len(HELPERS) :]]
            yield says(" | ".join(sorted(results)))
        elif task.startswith("Do "):
            await asyncio.sleep(0.1)
            yield says(f"Did {task[3:]}.")
        else:
            arguments = {one: json.dumps({"name": one, "prompt": f"Do {task} as {one}"}) for one in HELPERS}
            yield ModelReply(parts=tuple(ToolCall(one, "run_helper", arguments[one]) for one in HELPERS))


def open_store(path: str) -> Perdure:
    """The store at `path`, with the model of its agents."""
    settings = Settings(model="test/lead", embedding="none", home=str(Path(path).parent))
    return Perdure(path, models={"test/lead": Sharing()}, settings=settings)


def main(path: str, first: str) -> None:
    with open_store(path) as perdure:
        agent = perdure.agent("lead")
        print("ready", flush=True)
        for number in itertools.count(int(first)):
            agent.send(TASK.format(number), idempotency_key=str(number))
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
