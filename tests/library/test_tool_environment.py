"""The values of a tool's environment: encrypted where they are stored, given to the tool, shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import AlreadyExists, SecretKeyMissing, SecretUnreadable
from perdure.core.ids import ToolId
from perdure.core.specs import ToolCode
from perdure.domain.environment import open_environment
from perdure.domain.tools.units import unsealed_tools
from perdure.storage.tx import Tx
from tests.support.library import open_async

CANARY = "canary-83bc11d0"
SOURCE = 'def note(text: str) -> str:\n    """Note it.\n\n    Args:\n        text: what.\n    """\n    return text\n'
OTHER = SOURCE.replace("note", "other")


def files_with(text: str, folder: Path) -> list[str]:
    """The names of the files that hold it."""
    return [file.name for file in folder.iterdir() if text.encode() in file.read_bytes()]


async def load_code(perdure: AsyncPerdure, tool_id: str) -> ToolCode:
    """As the store has it."""
    code = await perdure.app.store.read(lambda tx: tx.tools.code(ToolId(tool_id)))
    assert code is not None
    return code


async def values(perdure: AsyncPerdure, tool_id: str) -> dict[str, str]:
    """What the tool is given of its own environment."""
    code, cipher = await load_code(perdure, tool_id), perdure.app.ports.cipher
    return await perdure.app.store.read(lambda tx: open_environment(tx, ToolId(tool_id), code, cipher=cipher))


async def test_a_value_is_encrypted_and_not_shown(tmp_path: Path) -> None:
    """No file of the store has it; the names and the references to secrets are told."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        made = await perdure.tools.create(SOURCE, environment={"TOKEN": CANARY, "KEY": "secret:SHARED"})
        code = await perdure.tools.code("note")
        assert code is not None
        assert (code.environment, code.sealed) == ({"KEY": "secret:SHARED", "TOKEN": ""}, {})
        assert CANARY not in repr(await load_code(perdure, made.id))
        assert await values(perdure, made.id) == {"TOKEN": CANARY, "KEY": "secret:SHARED"}
        assert files_with(CANARY, tmp_path) == [] != files_with("def note", tmp_path)


async def test_what_is_sent_back_as_it_was_shown_stays(tmp_path: Path) -> None:
    """An empty value keeps what is there; another one, a new one and a missing one are what they say."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        made = await perdure.tools.create(SOURCE, environment={"A": CANARY, "B": "2", "EMPTY": ""})
        await perdure.tools.update("note", description="Another.")
        shown = await perdure.tools.code("note")
        assert shown is not None
        await perdure.tools.update("note", environment=shown.environment)
        assert await values(perdure, made.id) == {"A": CANARY, "B": "2", "EMPTY": ""}
        await perdure.tools.update("note", environment={"A": "", "B": "3", "C": "secret:X"})
        assert await values(perdure, made.id) == {"A": CANARY, "B": "3", "C": "secret:X"}
        await perdure.tools.update("note", environment={"C": "plain"})
        assert await values(perdure, made.id) == {"C": "plain"}
        await perdure.tools.update("note", environment={})
        assert await values(perdure, made.id) == {}


async def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    """Though the same value encrypted is other bytes each time."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        made = await perdure.tools.create(SOURCE, environment={"A": CANARY})
        before = await load_code(perdure, made.id)
        assert await perdure.tools.create(SOURCE, environment={"A": CANARY}) == made
        await perdure.tools.upsert(SOURCE, environment={"A": CANARY})
        await perdure.tools.update("note", environment={"A": CANARY})
        assert await load_code(perdure, made.id) == before
        with pytest.raises(AlreadyExists, match="environment"):
            await perdure.tools.create(SOURCE, environment={"A": "other"})


async def test_a_value_of_another_tool_can_not_be_read(tmp_path: Path) -> None:
    """Encrypted for one tool and one variable; a row that is copied is refused."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        one = await perdure.tools.create(SOURCE, environment={"A": CANARY, "B": "2"})
        two = await perdure.tools.create(OTHER, environment={"A": "mine"})
        theirs, mine = await load_code(perdure, one.id), await load_code(perdure, two.id)
        for sealed in ({"A": theirs.sealed["A"]}, {"B": mine.sealed["A"]}):
            await put(perdure, two.id, replace(mine, sealed=sealed))
            with pytest.raises(SecretUnreadable):
                await values(perdure, two.id)


async def put(perdure: AsyncPerdure, tool_id: str, code: ToolCode) -> None:
    def unit(tx: Tx) -> None:
        tx.tools.update(tx.tools.get(ToolId(tool_id)), code=code, at=perdure.app.ports.clock.now())

    await perdure.app.store.write(unit)


async def test_what_an_older_version_stored_is_encrypted_when_the_store_is_opened(tmp_path: Path) -> None:
    """All of it, and once; until then nothing shows it either."""
    path = tmp_path / "agents.db"
    async with await open_async(path) as perdure:
        made = [await perdure.tools.create(SOURCE.replace("note", f"note{number}")) for number in range(3)]
        for number, tool in enumerate(made):
            code = await load_code(perdure, tool.id)
            old: dict[str, Any] = {"A": f"{CANARY}-{number}", "B": "secret:X"} if number else {"B": "secret:X"}
            await put(perdure, tool.id, replace(code, environment=old))
        code_shown = await perdure.tools.code("note1")
        assert code_shown is not None and code_shown.environment == {"A": "", "B": "secret:X"}
        assert await perdure.app.store.read(unsealed_tools, limit=2) in (
            [made[1].id, made[2].id],
            [made[2].id, made[1].id],
        )
    async with await open_async(path) as perdure:
        assert await perdure.app.store.read(unsealed_tools, limit=100) == []
        assert (await load_code(perdure, made[1].id)).environment == {"B": "secret:X"}
        assert await values(perdure, made[1].id) == {"A": f"{CANARY}-1", "B": "secret:X"}


async def test_without_a_key_a_value_is_refused_and_a_reference_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a secret is."""
    from perdure.core.secrets import NoCipher

    async with await open_async(tmp_path / "agents.db") as perdure:
        ports = replace(perdure.app.ports, cipher=NoCipher())
        monkeypatch.setattr(perdure.app, "ports", ports)
        with pytest.raises(SecretKeyMissing) as refused:
            await perdure.tools.create(SOURCE, environment={"A": CANARY})
        assert CANARY not in str(refused.value)
        await perdure.tools.create(SOURCE, environment={"A": "secret:X"})


async def names_of(perdure: AsyncPerdure) -> Sequence[str]:
    return [tool.name for tool in await perdure.tools.list(types=["custom"])]


async def test_the_tool_is_run_with_its_values(tmp_path: Path) -> None:
    """In a call, and in a try."""
    body = "    return os.environ['A'] + os.environ.get('B', '')\n"
    source = f"import os\ndef note() -> str:\n    'Note it.'\n{body}"
    async with await open_async(tmp_path / "agents.db") as perdure:
        if not (await perdure.app.shared.sandbox.isolation()).enough:
            pytest.skip("this machine can't hold code back")
        await perdure.tools.create(source, environment={"A": "one", "B": "two"})
        await perdure.tools.update("note", environment={"A": "", "B": "2"})

        assert (await perdure.tools.test("note")).text == "one2"
        assert json.dumps([*await names_of(perdure)]) == '["note"]'
