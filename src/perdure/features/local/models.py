"""The models of this machine's folder: what is known of each, and the processes that answer for them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ExtraMissing, InvalidInput, NotFound, PerdureError
from perdure.core.models import ModelTraits
from perdure.features.local.folder import CatalogueModel, ModelFolder, catalogue
from perdure.features.local.gguf import ModelHead, read_head
from perdure.providers.choosing import Choice
from perdure.providers.discovery import Endpoint
from perdure.settings import Settings, default_home

if TYPE_CHECKING:
    import ssl

    import httpx
    import httpx2

    from perdure.features.local.process import ModelProcess

PROVIDER = "local"
BASE_URL = "http://local/v1"
"""Its requests go to no port: `LocalTransport` takes them to a process."""
FOLDER = "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model that is here, or can be fetched.

    Args:
        size: of its file, in bytes.
        fetched: how much of it has come, in bytes, where it is not here.
        is_running: whether this process fetches it now.
        problem: why this process could not fetch it.
    """

    name: str
    title: str = ""
    about: str = ""
    size: int = 0
    licence: str = ""
    is_here: bool = False
    is_default: bool = False
    fetched: int = 0
    is_running: bool = False
    problem: str = ""


@dataclass
class Transfer:
    """A model that is being fetched in the background."""

    task: asyncio.Task[None]
    problem: str = ""


class LocalModels:
    """The local models of a process of Perdure; it is the server of the endpoint `local`.

    A process of llama.cpp is started by the first request, and again by the next one after it died. It ends when
    nobody has asked for a while.

    Args:
        processes: model -> its process, which may have ended.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            home = settings.folder
        except InvalidInput:  # whoever opens the store there is told
            home = default_home()
        self.folder = ModelFolder(home / FOLDER, settings.local_model)
        self.transfers: dict[str, Transfer] = {}
        self._settings = settings
        self.processes: dict[str, ModelProcess] = {}
        self._starting = asyncio.Lock()

    @functools.cached_property
    def endpoint(self) -> Endpoint:
        """The provider of these models, as the registry calls it."""
        return Endpoint(
            provider=PROVIDER, base_url=BASE_URL, source="`perdure model`", problem=self.missing(), guard=self
        )

    def missing(self) -> str:
        """What has to be installed before a model can run; empty: nothing."""
        if find_spec("xllamacpp") is not None:
            return ""
        return f"{ExtraMissing('a model without another program', extra='local')}; in a clone, `make local`"

    def names(self) -> tuple[str, ...]:
        """The models whose files are here."""
        return self.folder.names()

    def choice(self) -> Choice | None:
        """The model that a person chose, or the first that was fetched; None: there is none."""
        if name := self.folder.default:
            source = "from PERDURE_LOCAL_MODEL" if self.folder.setting else "chosen by `perdure model use`"
            return Choice(f"{PROVIDER}/{name}", source, is_setting=True)
        names = self.names()
        return Choice(f"{PROVIDER}/{names[0]}", "it is on this machine") if names and not self.missing() else None

    def what_helps(self, name: str) -> str:
        """Advice that makes this model available."""
        if name in self.names():
            return self.missing()
        setting = self.folder.setting
        if setting and self.folder.default == name and name not in catalogue():
            return f"PERDURE_LOCAL_MODEL is {setting!r}: there is neither such a file nor such a model"
        try:
            self.folder.get(name)
        except (NotFound, InvalidInput) as error:
            return str(error)
        return ""

    def traits(self, name: str) -> ModelTraits:
        """What the file of a model says of it."""
        head = self._head(name)
        if head is None:
            return ModelTraits(local=True, plain=True)
        return ModelTraits(local=True, plain=True, window_tokens=self._window_tokens(head), parameters=head.parameters)

    def listing(self) -> Mapping[str, Any]:
        """The models in the form in which llama.cpp's server lists its own."""
        heads = {name: self._head(name) for name in self.names()}
        return {
            "object": "list",
            "data": [
                {
                    "id": name,
                    "object": "model",
                    "owned_by": PROVIDER,
                    "meta": {
                        "n_ctx": self._window_tokens(head),
                        "n_ctx_train": head.window_tokens,
                        "n_params": head.parameters,
                        "size": head.size_bytes,
                    },
                }
                for name, head in heads.items()
                if head is not None
            ],
        }

    async def begin(self, name: str) -> ModelProcess:
        """The process of a model, for one request; `end` has to follow.

        Raises: ModelUnreachable: it ends before it answers; ModelRequestRefused: there is too little memory; NotFound,
            InvalidInput, ExtraMissing.
        """
        async with self._starting:
            process = self.processes.get(name)
            if process is None or not process.alive:
                if process is not None:
                    await process.stop()
                await self._stop_idle()
                process = self.processes[name] = await self._start(name)
            process.uses += 1
            if process.stop_timer is not None:
                process.stop_timer.cancel()
            return process

    def end(self, process: ModelProcess) -> None:
        """Say that a request has its answer."""
        process.uses -= 1
        if not process.uses and process.alive:
            stop = asyncio.get_running_loop().call_later
            process.stop_timer = stop(self._settings.local_idle_s, self._stop_unused, process)

    async def close(self) -> None:
        """End all processes and transfers."""
        tasks = [transfer.task for transfer in self.transfers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        processes, self.processes = list(self.processes.values()), {}
        for process in processes:
            await process.stop()

    async def get(self, model: CatalogueModel, progress: Callable[[int, int], None]) -> None:
        """Fetch the file of a model. `progress` hears of the bytes that are here, and of all.

        Raises: DownloadFailed, InvalidInput.
        """
        from perdure.features.local.download import download

        target = self.folder.file_of(model.name)
        await download(model, target, mirror=self._settings.model_mirror, progress=progress)

    def get_later(self, model: CatalogueModel) -> None:
        """Fetch the file of a model in the background; `rows` says how far it is."""
        known = self.transfers.get(model.name)
        if known is not None and not known.task.done():
            return

        async def fetch() -> None:
            transfer = self.transfers[model.name]
            try:
                await self.get(model, lambda done, total: None)
            except PerdureError as error:
                transfer.problem = str(error)

        self.transfers[model.name] = Transfer(asyncio.create_task(fetch()))

    def rows(self) -> list[Row]:
        """The models that are here, and those that can be fetched."""
        default, here, known = self.folder.default, self.names(), catalogue()
        rows = []
        for name in [*known, *(name for name in here if name not in known)]:
            model = known.get(name, CatalogueModel(name=name, address=""))
            head, transfer = self._head(name), self.transfers.get(name)
            rows.append(
                Row(
                    name=name,
                    title=model.title,
                    about=model.about,
                    size=model.size_bytes if head is None else head.size_bytes,
                    licence=model.licence,
                    is_here=name in here,
                    is_default=name == default,
                    fetched=self.folder.fetched_bytes(name),
                    is_running=transfer is not None and not transfer.task.done(),
                    problem="" if transfer is None else transfer.problem,
                )
            )
        return rows

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """The way of requests to the processes; part of the port `Guard`."""
        from perdure.features.local.transport import LocalTransport

        return LocalTransport(self)

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """Nobody calls a local model by httpx2. Raises: NotImplementedError."""
        raise NotImplementedError("local models have OpenAI's chat API")

    async def _start(self, name: str) -> ModelProcess:
        file = self.folder.get(name)
        if missing := self.missing():
            raise InvalidInput(missing)
        from perdure.features.local.memory import check_memory, plan_memory
        from perdure.features.local.process import start

        head = read_head(file)
        window = self._window_tokens(head)
        memory = plan_memory(head, window, self._settings.local_memory_mb)
        check_memory(name, memory, window)
        return await start(name, file, window_tokens=window, memory=memory)

    def _head(self, name: str) -> ModelHead | None:
        """The head of a model's file; None: there is none, or it can't be read."""
        try:
            file = self.folder.find(name)
            return None if file is None else read_head(file)
        except InvalidInput:
            return None

    def _window_tokens(self, head: ModelHead) -> int:
        return min(self._settings.local_window_tokens, head.window_tokens or self._settings.local_window_tokens)

    async def _stop_idle(self) -> None:
        """End the processes that nobody uses: another model is about to need their memory."""
        for name, process in list(self.processes.items()):
            if not process.uses:
                del self.processes[name]
                await process.stop()

    def _stop_unused(self, process: ModelProcess) -> None:
        """End a process that was not used for a while. The next request finds it dead, and starts another one."""
        if not process.uses and process.alive:
            process.process.kill()


def shown_size(size: int) -> str:
    """A size as people write it; nothing for none."""
    return "" if not size else f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def find_model(name: str, sha256: str = "") -> CatalogueModel:
    """The model of the catalogue that has this name, or the one at this address. Raises: InvalidInput."""
    known = catalogue()
    if name in known:
        return known[name]
    if "://" not in name:
        raise InvalidInput(
            f"there is no model {name!r} to fetch: there are {', '.join(known)}, or give the address of a .gguf file"
        )
    stem = name.partition("?")[0].rstrip("/").rpartition("/")[2].removesuffix(".gguf")
    return CatalogueModel(name=stem, address=name, sha256=sha256.lower())
