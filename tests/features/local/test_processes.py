"""A local model answers from a process of its own, which is started, watched and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, RunFailed
from perdure.core.events import MessageAdded, StepAbandoned
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.local.models import LocalModels
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings
from tests.features.local.conftest import Seen
from tests.support.model_files import write_model
from tests.support.programs import SRC

pytestmark = pytest.mark.usefixtures("llama")


def settings_for(home: Path, model: Path, **more: Any) -> Settings:
    """Settings of this data folder, with this model as the default."""
    return Settings(home=str(home / "home"), local_model=str(model), embedding="none", **more)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[LocalModels, ModelRegistry]]:
    """Local models, and a registry that has them."""
    local = LocalModels(settings)
    registry = ModelRegistry(own=local)
    try:
        yield local, registry
    finally:
        await registry.close()
        await local.close()


async def ask(registry: ModelRegistry, handle: str = "local/one") -> str:
    """The text of an answer."""
    model = registry.find(handle)
    assert model is not None
    pieces = [piece async for piece in model.respond(ModelRequest(model=handle, system="", messages=()))]
    assert isinstance(pieces[-1], ModelReply)
    return pieces[-1].parts[0].text  # type: ignore[union-attr]


def is_there(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


async def until_gone(pid: int) -> None:
    """Wait until a process has ended; the test's time limit is the only one."""

    def wait() -> None:
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            select.select([process], [], [])
            os.close(process)

    await asyncio.to_thread(wait)


async def test_it_answers_and_remembers_over_a_restart(tmp_path: Path, model_file: Path, seen: Seen) -> None:
    """It is the default of the settings, and its window is that of the setting."""
    settings = settings_for(tmp_path, model_file)
    async with await AsyncPerdure.open(settings=settings) as perdure:
        agent = await perdure.create_agent("Ada")
        assert agent.info.model == "local/one"
        assert perdure.app.models.window_tokens("local/one") == 8_192
        assert (await agent.send("My dog is called Rex.")).text == "I remember."
    pids = [line["pid"] for line in seen() if "pid" in line]
    assert [is_there(pid) for pid in pids] == [False]

    async with await AsyncPerdure.open(settings=settings) as perdure:
        agent = await perdure.agent("Ada")
        assert (await agent.send("What is he called?")).text == "I remember."
        assert await agent.message_count() == 4


async def test_what_its_answers_show_is_remembered_beside_what_its_file_says(tmp_path: Path, model_file: Path) -> None:
    async with opened(settings_for(tmp_path, model_file)) as (_, registry):
        registry.learn("local/one", calling="text")
        traits = registry.traits("local/one")

    assert (traits.calling, traits.window_tokens, traits.parameters) == ("text", 8_192, 896_896)


async def test_the_process_gets_no_secrets(
    tmp_path: Path, model_file: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither keys of the environment nor its own key where other users see it; and its memory is limited."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PERDURE_SECRET_KEY", "a-secret-of-the-store")
    async with opened(settings_for(tmp_path, model_file)) as (local, registry):
        await ask(registry)
        key = local.processes["one"].key
    started = seen()[0]

    assert not {name for name in started["environment"] if "KEY" in name or "PERDURE" in name}
    assert key not in " ".join(started["argv"])
    assert 0 < started["data"] < 8 << 30


async def test_an_idle_process_ends_and_the_next_message_starts_another(
    tmp_path: Path, model_file: Path, seen: Seen
) -> None:
    """It was not needed for the time of the setting."""
    async with opened(settings_for(tmp_path, model_file, local_idle_s=0.01)) as (_, registry):
        await ask(registry)
        await until_gone(seen()[0]["pid"])

        assert await ask(registry) == "I remember."
    assert len({line["pid"] for line in seen() if "pid" in line}) == 2


async def test_a_process_in_use_is_not_idle(tmp_path: Path, model_file: Path, seen: Seen) -> None:
    """Though other requests to it have ended, and though it was idle just before."""
    async with opened(settings_for(tmp_path, model_file, local_idle_s=0.01)) as (local, registry):
        process = await local.begin("one")
        await ask(registry)
        await asyncio.sleep(0.05)
        assert process.alive

        process.end()
        process.begin()
        await asyncio.sleep(0.05)
        assert process.alive

        process.end()
        await until_gone(seen()[0]["pid"])


async def test_a_model_that_is_asked_for_takes_the_place_of_an_idle_one(
    tmp_path: Path, model_file: Path, seen: Seen
) -> None:
    """Two would need the memory of both."""
    write_model(model_file.parent, "two.gguf")
    async with opened(settings_for(tmp_path, model_file)) as (local, registry):
        local.use(str(model_file.parent / "two.gguf"))
        await ask(registry)
        first = seen()[0]["pid"]
        await ask(registry, "local/two")

        assert not is_there(first)
        assert list(local.processes) == ["two"]


async def test_a_process_that_dies_in_an_answer_is_started_again_and_the_message_answered_once(
    tmp_path: Path, model_file: Path, seen: Seen
) -> None:
    """A reader hears that what came of the first answer is void."""
    model_file.with_name("one.gguf.deaths").write_text("1")
    async with await AsyncPerdure.open(settings=settings_for(tmp_path, model_file)) as perdure:
        agent = await perdure.create_agent("Ada")
        events = [event async for event in agent.stream("Hello")]
        answers = [message for message in await agent.messages() if message.role == "assistant"]

    assert [message.text for message in answers] == ["I remember."]
    kinds = [event.event for event in events if hasattr(event, "event")]
    assert sum(isinstance(kind, StepAbandoned) for kind in kinds) == 1
    told = [kind.message for kind in kinds if isinstance(kind, MessageAdded) and kind.message is not None]
    assert [message.role for message in told] == ["user", "assistant"]
    assert len([line for line in seen() if "said" in line]) == 2


async def test_a_process_that_always_dies_ends_the_run_with_words(tmp_path: Path, model_file: Path) -> None:
    """The message stays, and the next one is answered."""
    model_file.with_name("one.gguf.deaths").write_text("3")
    async with await AsyncPerdure.open(settings=settings_for(tmp_path, model_file)) as perdure:
        agent = await perdure.create_agent("Ada")
        with pytest.raises(RunFailed, match="its process is gone, it was ended by SIGKILL"):
            await agent.send("Hello")

        assert (await agent.send("Hello again")).text == "I remember."
        assert [message.role for message in await agent.messages()] == ["user", "user", "assistant"]


async def test_it_ends_with_its_parent(tmp_path: Path, model_file: Path, seen: Seen) -> None:
    """Also where that is killed."""
    program = (
        "import asyncio, sys\nfrom perdure.features.local.models import LocalModels\n"
        "from perdure.settings import Settings\n"
        "async def main():\n"
        "    await LocalModels(Settings.from_environment()).begin('one')\n"
        "    print('ready', flush=True)\n    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SRC}{os.pathsep}{os.environ['PYTHONPATH']}",
        "PERDURE_HOME": str(tmp_path / "home"),
        "PERDURE_LOCAL_MODEL": str(model_file),
    }
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"ready\n"
    child = seen()[0]["pid"]
    assert is_there(child)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()

    await until_gone(child)


async def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path, model_file: Path) -> None:
    """And its file is named in the run's error."""
    model_file.with_name("one.gguf.broken").touch()
    async with await AsyncPerdure.open(settings=settings_for(tmp_path, model_file)) as perdure:
        agent = await perdure.create_agent("Ada")

        with pytest.raises(RunFailed, match="the model one could not be loaded: the file is odd"):
            await agent.send("Hello")


async def test_a_model_that_needs_more_memory_than_is_allowed_is_not_started(tmp_path: Path, model_file: Path) -> None:
    """The error has both figures, and what helps."""
    settings = settings_for(tmp_path, model_file, local_memory_mb=100)
    async with await AsyncPerdure.open(settings=settings) as perdure:
        agent = await perdure.create_agent("Ada")

        with pytest.raises(RunFailed, match=r"needs about 0\.5 GB of memory, and PERDURE_LOCAL_MEMORY_MB allows 0\.1"):
            await agent.send("Hello")
    assert not model_file.with_name("one.gguf.seen").exists()
