"""A program whose agent has a companion, to be killed: it sends numbered messages, and has each read at once.

`companion_program.py STORE FIRST` says `ready`, then sends message FIRST, FIRST + 1, ..., prints the number, and has
the companion read it. The companion adds the numbers that it reads to the block `seen`, so that it shows what was read
twice or never.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator

from perdure import ModelDelta, ModelReply, ModelRequest, Perdure
from perdure.settings import Settings
from perdure.testing import calls, says

MODEL = "test/counting"


class CountingModel:
    """Answers the agent with a word; as its companion it notes the numbers of the messages that it reads."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await asyncio.sleep(0.004)  # long enough to be killed in
        if "You are a background agent" not in request.system:
            yield says("Fine.")
        elif any(message.role == "tool" for message in request.messages):
            yield calls("memory_finish_edits", call_id="call_2", reason="Counted.")
        else:
            text = next(one.text for one in request.messages if one.text.startswith("<system-reminder>"))
            numbers = re.findall(r"user \(.*?\): message (\d+)", text)
            yield calls("memory_insert", call_id="call_1", label="seen", new_string="\n".join(numbers))


def open_store(path: str) -> Perdure:
    """The store with the model of agent and companion."""
    settings = Settings(embedding="none", facts="off", model=MODEL, companion_retry_s=0.05)
    return Perdure(path, models={MODEL: CountingModel()}, settings=settings)


def main() -> None:
    """Send messages until the process is killed."""
    with open_store(sys.argv[1]) as perdure:
        agent, number = perdure.agent("ann"), int(sys.argv[2])
        print("ready", flush=True)
        while True:
            agent.send(f"message {number}", idempotency_key=str(number))
            print(number, flush=True)
            agent.companion.wake()
            number += 1


if __name__ == "__main__":
    main()
