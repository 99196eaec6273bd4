"""What has to stand in a store and beside it after processes that obeyed plans were killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from perdure.core.blocks import Block
from perdure.core.messages import Message, ToolResult
from perdure.storage.tx import Tx
from tests.faults.children import Line, Place
from tests.simulator.invariants import check_agent
from tests.support.kill_target import STEPS
from tests.support.stores import check_integrity, opened

PLANS = ("append", "insert note", "note+mark", "share", "mark+note archive", "append note share", "archive insert", "")
"""What a message may order; see `tests.support.kill_target`."""


class Talker(Protocol):
    """Who has sent messages on a line."""

    @property
    def sent(self) -> Mapping[str, str]:
        """Key -> plan."""


def check_edits(
    key: str, plan: str, results: Sequence[ToolResult], blocks: dict[str, Block], effects: Counter[str]
) -> None:
    """What the message with this key ordered was done as often as it may be."""
    done = {result.call_id: result for result in results}
    for number, step in enumerate(plan.split()):
        for index, word in enumerate(step.split("+")):
            result = done[f"{key}-{number}-{index}"]
            name, arguments = STEPS[word]
            assert result.name == name
            if name == "note" and result.status == "error":
                assert "outcome unknown" in result.text
                assert effects[f"note {key}"] <= 1
                continue
            assert result.status == "success", result
            if "label" in arguments:
                assert blocks[arguments["label"]].value.split("\n").count(key) == 1
            elif name == "note":
                assert effects[f"note {key}"] == 1
            elif name == "mark":
                assert effects[f"mark {key}"] >= 1


async def check_store(place: Place, lines: Sequence[Line], clients: Sequence[Talker]) -> None:
    """Everything that was promised stands in the store, once."""
    effects = Counter(place.effects_left())

    def check(tx: Tx) -> None:
        for agent_id in {line.agent: None for line in lines}:
            mine = [client for client, line in zip(clients, lines, strict=True) if line.agent == agent_id]
            texts = [f"{key} {plan}" for client in mine for key, plan in client.sent.items()]
            check_agent(tx, agent_id, sent=texts)
            blocks = {block.label: block for block in tx.blocks.list_by_agent(agent_id)}
            messages = tx.messages.list(agent_id, limit=1_000_000)
            passages = Counter(
                passage.text
                for archive in tx.archives.list_by_agent(agent_id)
                for passage in tx.passages.page(archive.id, limit=1_000_000)
            )
            for client in mine:
                for key, plan in client.sent.items():
                    check_edits(key, plan, _results(messages, key), blocks, effects)
                    assert passages[f"note of {key}"] == plan.split().count("archive")

    async with opened(place.store) as store:
        await store.read(check)
    check_integrity(place.store)


def _results(messages: Sequence[Message], key: str) -> list[ToolResult]:
    return [result for message in messages for result in message.results if result.call_id.startswith(f"{key}-")]
