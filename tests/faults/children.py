"""Real processes over one store, and the clients that talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, BlockId, ConversationId
from perdure.domain.blocks.units import NewBlock
from tests.support.kill_target import MODEL, TOOLS, effect_tools, obedient_model
from tests.support.stores import SECRET_KEY, new_address
from tests.support.warm import KILL, killed, warm

SRC = Path(__file__).resolve().parents[2] / "src"
START_S = 20.0
LIMIT_CHARS = 100_000


class Place:
    """Where everything of one test lies: a folder, and the address of a store.

    Args:
        settings: further variables of the children.
    """

    def __init__(self, folder: Path, store: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.folder, self.store = folder, store or new_address(folder, "store.db")
        self.settings = {"PERDURE_SECRET_KEY": SECRET_KEY, **(settings or {})}

    @property
    def effects(self) -> Path:
        return self.folder / "effects.txt"

    @property
    def errors(self) -> Path:
        """What the children wrote to stderr."""
        return self.folder / "stderr.txt"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{SRC.parent}", **self.settings}

    def effects_left(self) -> list[str]:
        """What the tools did outside the store: `tool key`, in order."""
        return self.effects.read_text().splitlines() if self.effects.exists() else []


async def open_store(place: Place) -> AsyncPerdure:
    """The store in this process, with the model and the tools of the children."""
    return await AsyncPerdure.open(place.store, models={MODEL: obedient_model()}, tools=effect_tools(place.effects))


@dataclass(frozen=True)
class Line:
    """A conversation that messages are sent to."""

    agent: AgentId
    conversation: ConversationId

    def order(self, key: str, steps: str, **more: Any) -> dict[str, Any]:
        return {"agent": self.agent, "conversation": self.conversation, "key": key, "text": f"{key} {steps}", **more}


async def make_agents(place: Place) -> Sequence[Line]:
    """Four lines to talk on: two conversations of one agent, and two more agents; all share a block."""
    async with await open_store(place) as perdure:
        shared: BlockId = (await perdure.blocks.create("shared", limit_chars=LIMIT_CHARS)).id
        lines = []
        for name, conversations in (("first", 2), ("second", 1), ("third", 1)):
            agent = await perdure.create_agent(
                name,
                model=MODEL,
                blocks=[NewBlock(label="human", limit_chars=LIMIT_CHARS)],
                block_ids=[shared],
                tools=TOOLS,
            )
            lines.append(Line(agent.id, (await agent.conversations())[0].id))
            lines += [Line(agent.id, (await agent.new_conversation()).id) for _ in range(conversations - 1)]
        return lines


class Child:
    """A running `tests.support.kill_target`. What it told is in `told`, the newest last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.told: list[dict[str, Any]] = []
        self._process = process
        self._news = asyncio.Event()
        self._silent = False
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, place: Place, *, machine: str = "") -> Child:
        """A started child, which may not be ready yet. `machine`: others take it to be on this one, and can't see
        whether it lives."""
        with place.errors.open("ab") as errors:
            return cls(
                await asyncio.create_subprocess_exec(
                    warm("tests.support.kill_target", place.environment),
                    place.store,
                    str(place.effects),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env={**place.environment, "KILL_TARGET_MACHINE": machine},
                )
            )

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def ready(self) -> None:
        async with asyncio.timeout(START_S):
            await self.tells(1)
        if not self.told:
            raise EOFError(f"process {self._process.pid} ended before it was ready")

    def send(self, order: dict[str, Any]) -> None:
        """Give an order; a dead process takes none, as a server that is down."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def hears(self, what: str, key: object, *, timeout_s: float) -> dict[str, Any]:
        """The line that tells `what` of `key`, once it was told. Raises: TimeoutError; EOFError: the process ended."""
        async with asyncio.timeout(timeout_s):
            while (line := self._find(what, key)) is None:
                if self._silent:
                    raise EOFError(f"process {self._process.pid} ended before it told {what} of {key}")
                await self._news.wait()
        return line

    async def tells(self, count: int) -> None:
        """Return once it has told so many lines, or ended."""
        while len(self.told) < count and not self._silent:
            await self._news.wait()

    async def kill(self) -> int:
        """SIGKILL; its exit code. What it told until then is in `told`."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(KILL)
        return killed(await self._gone())

    async def close(self) -> int:
        """Let it finish and end; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(START_S):
            return await self._gone()

    async def _gone(self) -> int:
        await self._reader
        return await self._process.wait()

    def _find(self, what: str, key: object) -> dict[str, Any] | None:
        return next((line for line in self.told if line.get(what) == key), None)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while (line := await self._process.stdout.readline()).endswith(b"\n"):
            self.told.append(json.loads(line))
            self._tell()
        self._silent = True
        self._tell()

    def _tell(self) -> None:
        """Wake whoever waits now."""
        self._news.set()
        self._news = asyncio.Event()
