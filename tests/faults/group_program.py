"""A program whose groups answer one task after the other: `group_program STORE FIRST`, until it is killed.

It prints `ready`, and then the number of each task that is done. Task by task, another kind of group answers.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator

from perdure import AsyncPerdure, ModelReply, ModelRequest, Settings
from perdure.core.ids import GroupId
from perdure.core.models import ModelDelta
from perdure.features.groups.runner import GroupRunner
from perdure.features.groups.values import GroupKind, GroupTurnEnded
from perdure.testing import ScriptedModel, says
from tests.support.groups import request

NAMES = ("Anna", "Bob", "Max", "Sue", "Carl")
KINDS: tuple[GroupKind, ...] = ("round_robin", "supervisor", "dynamic", "sleeptime")
TASK = "Task {}"
ANSWER_S = 0.004
"""How long a model takes: long enough to be killed in."""

WHAT_IS_SAID = {
    "round_robin": ["Anna", "Bob"],
    "supervisor": ["Anna", "Bob", "Max"],
    "dynamic": ["Max", "Anna", "Max", "Bob", "Max"],
    "sleeptime": ["Sue"],
}
"""Kind -> who speaks in a turn, in order; the manager of a dynamic group chooses, and Carl is Sue's companion."""
MEMBERS = {"sleeptime": ("Carl",)}
MANAGERS = {"supervisor": "Max", "dynamic": "Max", "sleeptime": "Sue"}


class Slowly:
    """A model that thinks for a moment."""

    def __init__(self, name: str) -> None:
        self._model = ScriptedModel(otherwise=_choose if name == "Max" else says(f"{name} is done."))

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await asyncio.sleep(ANSWER_S)
        async for one in self._model.respond(request):
            yield one


def _choose(request: ModelRequest) -> ModelReply:
    """The next of Anna and Bob, or the end; as the manager that answers, an answer."""
    text = next(message.text for message in reversed(request.messages) if message.role == "user")
    if "answer the user" in text:
        return says("Max is done.")
    return says("Anna" if "[User]" in text else "Bob" if "[Anna]" in text else "DONE!")


async def open_store(path: str) -> AsyncPerdure:
    """The store at `path`, with the models of its agents."""
    models = {f"test/{name}": Slowly(name) for name in NAMES}
    return await AsyncPerdure.open(path, models=models, settings=Settings(model="test/Anna", embedding="none"))


async def do_task(perdure: AsyncPerdure, groups: list[GroupId], number: int) -> None:
    """Have a group answer a task, once."""
    group_id = groups[number % len(groups)]
    turns = perdure.app.service(GroupRunner)
    turn = await turns.send(request(group_id, TASK.format(number), idempotency_key=str(number)))
    async for event in turns.follow(turn):
        if isinstance(event, GroupTurnEnded):
            return


async def main(path: str, first: str) -> None:
    async with await open_store(path) as perdure:
        groups = [group.id for group in reversed(await perdure.groups.list())]
        print("ready", flush=True)
        for number in itertools.count(int(first)):
            await do_task(perdure, groups, number)
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
