"""How long one agent waits for the answers of 50: `python -m benchmarks.fan_out`.

A lead writes to all agents with a tag, by turns to one and to fifty, in one program and one store. Their model takes
200 ms for each answer, the lead's own none. Judged is the wait for fifty as a multiple of that for one: the medians of
all rounds. Then three of the fifty are slow and two fail: what is judged is that the others' answers are there shortly
after the time-out. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.messages import Message
from perdure.core.models import Model, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, fails, says

__all__ = ["main"]

BAR = 3.0
AGENTS, SLOW, FAILING = 50, 3, 2
LATENCY_S = 0.2
TIMEOUT_S = 1.0
LATE_BAR_S = 0.5
ROUNDS = 10
TOOL = "send_message_to_agents_matching_all_tags"


@dataclass(frozen=True)
class Answering:
    """A model that takes its time, and then answers or fails."""

    latency_s: float
    is_down: bool = False

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        await asyncio.sleep(self.latency_s)
        if self.is_down:
            raise fails("no power")
        yield says("The door is dry, and the window will be by four.")


def ask(tag: str) -> tuple[Any, Any]:
    """What the lead's model answers: it writes to all agents with the tag, and ends."""
    return calls(TOOL, message="How far are you?", tags=[tag]), says("Thanks.")


async def wait(lead: AsyncAgent) -> tuple[float, list[dict[str, Any]]]:
    """How many seconds a message to the lead takes, and what it hears of each agent."""
    began = time.perf_counter()
    reply = await lead.send("Ask them.")
    return time.perf_counter() - began, answers_of(reply.messages)


def answers_of(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    (result,) = [result for message in messages for result in message.results]
    return list(json.loads(result.text))


async def measure(folder: Path) -> tuple[float, float, float, list[dict[str, Any]]]:
    """The seconds of one answer, of fifty, and of fifty of which some are slow or fail; and those answers."""
    script = [turn for _ in range(ROUNDS + 1) for tag in ("one", "all") for turn in ask(tag)]
    models: dict[str, Model] = {
        "test/lead": ScriptedModel(*script, *ask("mixed")),
        "test/worker": Answering(LATENCY_S),
        "test/slow": Answering(20 * TIMEOUT_S),
        "test/failing": Answering(0.0, is_down=True),
    }
    settings = replace(Settings(), embedding="none", agent_reply_s=TIMEOUT_S)
    async with await AsyncPerdure.open(folder / "agents.db", models=models, settings=settings) as perdure:
        lead = await perdure.create_agent("lead", model="test/lead", tools=[TOOL])
        for number in range(AGENTS):
            tags = ["all", *(["one"] if number == 0 else []), *(["mixed"] if number >= SLOW + FAILING else [])]
            await perdure.create_agent(f"worker {number}", model="test/worker", tags=tags)
        for number in range(SLOW + FAILING):
            model = "test/slow" if number < SLOW else "test/failing"
            await perdure.create_agent(f"trouble {number}", model=model, tags=["mixed"])
        waits: tuple[list[float], list[float]] = ([], [])
        for number in range(ROUNDS + 1):
            for own in waits:
                seconds, _ = await wait(lead)
                if number:  # the first of each warms up
                    own.append(seconds)
        mixed_s, answers = await wait(lead)
    return statistics.median(waits[0]), statistics.median(waits[1]), mixed_s, answers


def main() -> int:
    """Print what was measured; 1 if a bar was missed."""
    with tempfile.TemporaryDirectory() as folder:
        one_s, all_s, mixed_s, answers = asyncio.run(measure(Path(folder)))
    replied = sum("response" in answer for answer in answers)
    late_s = mixed_s - TIMEOUT_S
    times = all_s / one_s
    missed = times > BAR or late_s > LATE_BAR_S or (len(answers), replied) != (AGENTS, AGENTS - SLOW - FAILING)
    print(f"one agent answers after {one_s * 1000:.0f} ms, {AGENTS} after {all_s * 1000:.0f} ms")
    print(f"{times:.2f} times as long; bar {BAR}")
    print(
        f"{SLOW} slow and {FAILING} failing ones: {replied} replies of {len(answers)} after {mixed_s:.2f} s,", end=" "
    )
    print(f"{late_s:.2f} s after the time-out; bar {LATE_BAR_S}")
    print("MISSED" if missed else "ok")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
