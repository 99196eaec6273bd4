"""`kill -9` of `perdure telegram` while fifty people write to it at once.

Short in `make test-all`, many kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("telegram", reason="python-telegram-bot is installed by `make setup`")

import uvicorn

from perdure import AsyncPerdure
from perdure.core.ids import ConversationId
from perdure.testing import HttpModel, ScriptedModel, says
from tests.support.programs import environment
from tests.support.stores import SECRET_KEY
from tests.support.telegram_api import TOKEN, BotApi
from tests.support.warm import KILL, killed, warm

pytestmark = [pytest.mark.faults, pytest.mark.uses("interfaces")]

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS, KILLS = (5, 10) if FULL else (1, 2)
MODEL = "openai/test"
CHATS = range(1, 51)
STUCK_S = 60.0


class BotProcess:
    """`perdure telegram` as a process of its own, on the store in a folder."""

    def __init__(self, home: Path, api_url: str, model_url: str) -> None:
        self._home, self._api_url = home, api_url
        settings = {"PERDURE_SECRET_KEY": SECRET_KEY, "PERDURE_LEASE_S": "2", "PERDURE_TELEGRAM_TOKEN": TOKEN}
        self._settings = {**settings, "OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "none"}
        self.errors = home / "errors.txt"

    async def start(self) -> None:
        ours = environment(self._home, **self._settings)
        allowed = [word for chat in CHATS for word in ("--allow", str(chat))]
        with self.errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                warm("perdure", ours),
                *("telegram", "ann", "--api", self._api_url, *allowed),
                env=ours,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    async def kill(self) -> int:
        """End it without a word; its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(KILL)
        return killed(await self._process.wait())

    def state(self) -> dict[str, Any]:
        """What it has noted."""
        (path,) = (self._home / "telegram").glob("*.json")
        return dict(json.loads(path.read_text()))

    def open_deliveries(self) -> dict[int, int]:
        """Update -> how many messages of its answer were sent."""
        return {int(number): one["sent"] for number, one in self.state()["open"].items()}


@contextlib.asynccontextmanager
async def listening(api: BotApi) -> AsyncIterator[str]:
    """The address at which the stand-in for Telegram listens."""
    config = uvicorn.Config(api.app, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.force_exit = server.should_exit = True
        await task


def echo(asked: Any) -> Any:
    """An answer that repeats the newest message of the user."""
    content = [one["content"] for one in asked["messages"] if one["role"] == "user"][-1]
    text = content if isinstance(content, str) else content[-1]["text"]
    return says("echo " + text.rpartition("\n\n")[2])


async def wait_until(condition: Callable[[], bool], bot: BotProcess) -> None:
    """Wait until something holds. Raises: AssertionError: it does not, with what the bot said."""
    deadline = asyncio.get_running_loop().time() + STUCK_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, bot.errors.read_text()
        await asyncio.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_each_message_is_answered_once(tmp_path: Path, seed: int) -> None:
    """An answer comes again only if Telegram had it, and the process was killed before it noted that."""
    api, chance = BotApi(), random.Random(seed)
    said: dict[int, str] = {}
    unnoted: dict[str, int] = {}

    def answers() -> Counter[str]:
        return Counter(str(one["text"]) for one in api.sent)

    async with HttpModel(otherwise=echo) as model, listening(api) as url:
        bot = BotProcess(tmp_path, url, model.url)
        async with await AsyncPerdure.open(tmp_path / "perdure.db", models={MODEL: ScriptedModel()}) as perdure:
            agent_id = (await perdure.create_agent("ann", model=MODEL)).id
        for turn in range(KILLS + 1):
            said |= {api.say(f"{turn} {chat}", chat=chat): f"{turn} {chat}" for chat in CHATS}
            goal = len(CHATS) * turn + chance.randint(5, 45)
            await bot.start()
            await wait_until(lambda goal=goal: len(api.sent) >= goal, bot)  # type: ignore[misc]
            if turn < KILLS:
                await asyncio.sleep(chance.uniform(0, 0.05))
                assert await bot.kill() == -signal.SIGKILL, bot.errors.read_text()
                await asyncio.sleep(0.2)  # what it sent last arrives
                waiting = [f"echo {said[number]}" for number, sent in bot.open_deliveries().items() if not sent]
                unnoted |= {text: count for text, count in answers().items() if text in waiting}
        await wait_until(lambda: len(answers()) == len(said) and not bot.open_deliveries(), bot)
        await bot.kill()

    assert answers() == {f"echo {text}": 1 + unnoted.get(f"echo {text}", 0) for text in said.values()}
    assert len(unnoted) < len(said) / 4
    async with await AsyncPerdure.open(tmp_path / "perdure.db", models={MODEL: ScriptedModel()}) as perdure:
        for chat, conversation in bot.state()["chats"].items():
            messages = await (await perdure.agent(agent_id)).messages(conversation=ConversationId(conversation))
            pairs = [(f"{turn} {chat}", f"echo {turn} {chat}") for turn in range(KILLS + 1)]
            assert [one.text for one in messages] == [text for pair in pairs for text in pair]
