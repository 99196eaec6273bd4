"""A program whose agent passes each task on to all its workers: `writing_program STORE FIRST`, until it is killed.

It prints `ready`, and then the number of each task that is done.
"""

from __future__ import annotations

import itertools
import sys

from perdure import ModelReply, ModelRequest, Perdure, Settings
from perdure.testing import ScriptedModel, calls, says

WORKERS = ("work 1", "work 2", "work 3")
TASK = "Task {}"


def open_store(path: str) -> Perdure:
    """The store at `path`, with the models of its agents."""
    models = {"test/lead": ScriptedModel(otherwise=_pass_on), "test/work": ScriptedModel(otherwise=says("Done."))}
    return Perdure(path, models=models, settings=Settings(model="test/lead", embedding="none"))


def _pass_on(request: ModelRequest) -> ModelReply:
    """A message to all workers, and after their replies an end."""
    if request.messages[-1].role == "tool":
        return says("All done.")
    task = next(message.text for message in reversed(request.messages) if message.role == "user")
    return calls("send_message_to_agents_matching_all_tags", message=task, tags=["work"])


def main(path: str, first: str) -> None:
    with open_store(path) as perdure:
        agent = perdure.agent("lead")
        print("ready", flush=True)
        for number in itertools.count(int(first)):
            agent.send(TASK.format(number), idempotency_key=str(number))
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
