"""A program whose agent has three helpers do each task, one of them a fork: `helping_program STORE FIRST`, until it is
killed.

It prints `ready`, and then the number of each task that is done.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from perdure import ModelReply, ModelRequest, Perdure, Settings
from perdure.core.messages import ToolCall
from perdure.testing import ScriptedModel, says

HELPERS = ("general", "plan", "fork")
TASK = "Task {}"


def open_store(path: str) -> Perdure:
    """The store at `path`, with the models of its agents."""
    models = {"test/lead": ScriptedModel(otherwise=_share_out)}
    settings = Settings(model="test/lead", embedding="none", home=str(Path(path).parent))
    return Perdure(path, models=models, settings=settings)


def _share_out(request: ModelRequest) -> ModelReply:
    """A helper says what it was asked; the agent calls three, and says what all of them said."""
    newest = request.messages[-1]
    if newest.role == "tool":
        results = [message.text.partition("\n")[0] for message in request.messages[-len(HELPERS) :]]
        return says(" | ".join(sorted(results)))
    if (task := newest.text.rpartition("\n")[2]).startswith("Do "):
        return says(f"Did {task[3:]}.")
    called = [ToolCall("", "run_helper", json.dumps({"name": one, "prompt": f"Do {task} as {one}"})) for one in HELPERS]
    return ModelReply(parts=tuple(called))


def main(path: str, first: str) -> None:
    with open_store(path) as perdure:
        agent = perdure.agent("lead")
        print("ready", flush=True)
        for number in itertools.count(int(first)):
            agent.send(TASK.format(number), idempotency_key=str(number))
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
