"""`perdure store reindex`: what was there before gets its vectors, what is wrong is told, and it may be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.app import EmbedderChoice
from perdure.core.errors import ModelRequestRefused
from perdure.core.ports import EmbedPurpose
from perdure.engine.workers import embedding
from perdure.testing import ScriptedEmbedder
from tests.support.programs import run_inside


class Picky(ScriptedEmbedder):
    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document"):  # type: ignore[no-untyped-def]
        if any("bad" in text for text in texts):
            raise ModelRequestRefused("this text is refused")
        return await super().embed(texts, purpose=purpose)


def fill(home: Path) -> None:
    """A store that was used without an embedder: an agent with three messages and two passages."""

    async def talk() -> None:
        async with await AsyncPerdure.open(home / "perdure.db") as perdure:
            agent = await perdure.create_agent("ada")
            await agent.send("My name is Ada.")
            await agent.archive("Ada likes trains")
            await agent.archive("a bad one")

    asyncio.run(talk())


def embedded_by(monkeypatch: pytest.MonkeyPatch, embedder: ScriptedEmbedder) -> None:
    monkeypatch.setattr("perdure.app.choose_embedder", lambda setting: EmbedderChoice(embedder, "given by the test"))
    for name in ("POLL_S", "TRY_AGAIN_S"):
        monkeypatch.setattr(embedding, name, 0.01)


def test_what_was_there_before_gets_its_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, or what is named; a second time there is nothing to do, unless it is asked to do it again."""
    fill(tmp_path)
    embedder = ScriptedEmbedder()
    embedded_by(monkeypatch, embedder)
    result = run_inside(tmp_path, "store", "reindex", "--agent", "ada")
    assert (result.returncode, result.stderr) == (0, "")
    assert "2 texts with a vector of test/words, 2 of them now" in result.stdout

    assert "4 texts with a vector" in run_inside(tmp_path, "store", "reindex").stdout
    requests = len(embedder.requests)
    assert run_inside(tmp_path, "store", "reindex").stdout == "4 texts with a vector of test/words.\n"
    assert len(embedder.requests) == requests
    assert "4 texts" in run_inside(tmp_path, "store", "reindex", "--again").stdout

    other = ScriptedEmbedder(handle="test/other", dimensions=32)
    embedded_by(monkeypatch, other)
    assert "4 texts with a vector of test/other" in run_inside(tmp_path, "store", "reindex").stdout


@pytest.mark.uses("files")
def test_the_texts_of_files_get_their_vectors_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was taken in without an embedder is found by meaning after a reindex; an archive goes by its name."""

    async def take_in() -> None:
        async with await AsyncPerdure.open(tmp_path / "perdure.db") as perdure:
            folder = await perdure.folders.create("manuals")
            await folder.upload(b"The boiler is a Vaillant.", name="boiler.txt")
            await folder.wait()
            await (await perdure.archives.create("notes")).insert("The router stands in the hall.")

    asyncio.run(take_in())
    embedded_by(monkeypatch, ScriptedEmbedder())

    assert run_inside(tmp_path, "store", "reindex", "--archive", "notes").stdout.startswith("1 text with a vector")
    assert run_inside(tmp_path, "store", "reindex").stdout.startswith("2 texts with a vector")


def test_a_text_that_can_not_be_embedded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, the reason and what helps are said, the others have their vectors."""
    fill(tmp_path)
    embedded_by(monkeypatch, Picky())
    result = run_inside(tmp_path, "store", "reindex")
    assert result.returncode == 1
    assert "3 texts with a vector" in result.stdout
    assert "could not be embedded: this text is refused" in result.stderr
    assert "tries them again" in result.stderr


def test_what_can_not_be_done_is_said(tmp_path: Path) -> None:
    """No store, no embedder, no such agent."""
    assert "there is no store yet" in run_inside(tmp_path, "store", "reindex").stderr
    fill(tmp_path)
    result = run_inside(tmp_path, "store", "reindex", PERDURE_EMBEDDING="none")
    assert (result.returncode, result.stderr) == (1, "error: there is no embedder: PERDURE_EMBEDDING is `none`\n")
