"""Counts by tiktoken's ranks: found on disk, exact, and never downloaded."""

from __future__ import annotations

import gzip
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from perdure import AsyncPerdure, InvalidInput
from perdure.providers.tiktoken_counter import RANKS_FILES, TiktokenCounter
from perdure.settings import Settings
from perdure.testing import InlineStore

pytest.importorskip("tiktoken")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with o200k's ranks under the name that tiktoken's cache gives them."""
    found = find_spec("bpe_openai")  # importing it warns of how it opens its own files
    assert found is not None and found.origin is not None
    packed = Path(found.origin).with_name("data").joinpath("o200k_base.tiktoken.gz").read_bytes()
    folder = tmp_path_factory.mktemp("ranks")
    (folder / RANKS_FILES[0]).write_bytes(gzip.decompress(packed))
    return folder


@pytest.fixture(scope="module")
def counter(ranks: Path) -> TiktokenCounter:
    return TiktokenCounter.from_disk({"TIKTOKEN_CACHE_DIR": str(ranks)})


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("hello world", 2), ("Hello, how are you doing today?", 8), ("1234567", 3), ("<|endoftext|>", 7)],
)
def test_counts_are_exact(counter: TiktokenCounter, text: str, tokens: int) -> None:
    """Both ways; a special token is the text that it is."""
    assert counter.count(text) == counter.at_least(text) == tokens


def test_what_no_encoding_allows_is_counted(counter: TiktokenCounter) -> None:
    """A lone surrogate or a NUL is no error."""
    assert counter.count("a\ud800b\0") >= 3


def test_a_word_without_end_is_counted_in_parts(counter: TiktokenCounter) -> None:
    """A million times the same letter: eight to a token."""
    assert counter.count("a" * 1_000_000) == 125_000


def test_the_published_name_is_found_too(ranks: Path, tmp_path: Path) -> None:
    """Who copies the file by hand doesn't have to know the cache's name."""
    (tmp_path / RANKS_FILES[1]).write_bytes((ranks / RANKS_FILES[0]).read_bytes())

    assert TiktokenCounter.from_disk({"DATA_GYM_CACHE_DIR": str(tmp_path)}).count("hello world") == 2


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    """The error says what is missing, where it was looked for, and what helps."""
    with pytest.raises(InvalidInput, match="nothing is downloaded") as caught:
        TiktokenCounter.from_disk({"TIKTOKEN_CACHE_DIR": str(tmp_path)})

    assert str(tmp_path) in str(caught.value)
    assert RANKS_FILES[1] in str(caught.value)


def test_damaged_ranks_are_an_error(tmp_path: Path) -> None:
    """Half a file would count something, only not tokens. It is left as it is."""
    (tmp_path / RANKS_FILES[0]).write_bytes(b"IQ== 0\n")

    with pytest.raises(InvalidInput, match="damaged"):
        TiktokenCounter.from_disk({"TIKTOKEN_CACHE_DIR": str(tmp_path)})

    assert (tmp_path / RANKS_FILES[0]).read_bytes() == b"IQ== 0\n"


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for tiktoken without having it is told what to install."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    with pytest.raises(InvalidInput, match=r"perdure\[tiktoken\]"):
        TiktokenCounter.from_disk({})


def test_other_counters_are_refused() -> None:
    """With the choices that there are."""
    with pytest.raises(InvalidInput, match="'guess': script or tiktoken"):
        Settings.from_environment({"PERDURE_TOKEN_COUNTER": "guess"})


async def test_the_setting_chooses(ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a store with ranks works; without them it is an error before anything is opened."""
    settings = Settings.from_environment({"PERDURE_TOKEN_COUNTER": "tiktoken"})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(ranks))
    opened = await AsyncPerdure.open(store=InlineStore(), settings=settings)
    await opened.close()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    with pytest.raises(InvalidInput, match=r"o200k_base\.tiktoken"):
        await AsyncPerdure.open(tmp_path / "a.db", settings=settings)
    assert not (tmp_path / "a.db").exists()
