"""The models of this machine's folder: what is known of each, and the processes that answer for them."""

from __future__ import annotations

import asyncio
import functools
from importlib.util import find_spec
from typing import TYPE_CHECKING

from perdure.core.errors import ExtraMissing, InvalidInput, ModelRequestRefused, NotFound
from perdure.core.models import ModelTraits
from perdure.features.local.folder import LocalModel, ModelFolder
from perdure.features.local.gguf import read_head
from perdure.providers.choosing import Choice
from perdure.providers.discovery import Endpoint
from perdure.settings import Settings, default_home

if TYPE_CHECKING:
    import ssl

    import httpx
    import httpx2

    from perdure.features.local.download import Progress
    from perdure.features.local.process import ModelProcess

PROVIDER = "local"
BASE_URL = "http://local/v1"
"""Its requests go to no port: `LocalTransport` takes them to a process."""
FOLDER = "models"


class LocalModels:
    """The local models of a process of Perdure; it is the server of the endpoint `local`.

    A process of llama.cpp is started by the first request, and again by the next one after it died. It ends when
    nobody has asked for a while.

    Args:
        processes: model -> its process, which may have ended.
        transfers: model -> the task that fetches it, or has.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            home = settings.folder
        except InvalidInput:  # whoever opens the store there is told
            home = default_home()
        self.folder = ModelFolder(home / FOLDER, settings.local_model)
        self.transfers: dict[str, asyncio.Task[None]] = {}
        self.processes: dict[str, ModelProcess] = {}
        self._settings = settings
        self._starting = asyncio.Lock()

    @functools.cached_property
    def endpoint(self) -> Endpoint:
        """The provider of these models, as the registry calls it."""
        problem = self.missing()
        return Endpoint(provider=PROVIDER, base_url=BASE_URL, source="`perdure model`", problem=problem, guard=self)

    def missing(self) -> str:
        """What has to be installed before a model can run; empty: nothing."""
        if find_spec("xllamacpp") is not None:
            return ""
        return f"{ExtraMissing('a model without another program', extra='local')}; in a clone, `make local`"

    def names(self) -> tuple[str, ...]:
        """The models whose files are here."""
        return tuple(self.folder.files())

    def choice(self) -> Choice | None:
        """The model that a person chose, or the first that was fetched; None: there is none."""
        if name := self.folder.default:
            source = "from PERDURE_LOCAL_MODEL" if self.folder.setting else "chosen by `perdure model use`"
            return Choice(f"{PROVIDER}/{name}", source, is_setting=True)
        names = self.names()
        return Choice(f"{PROVIDER}/{names[0]}", "it is on this machine") if names and not self.missing() else None

    def what_helps(self, name: str) -> str:
        """Advice that makes this model available; empty: it is."""
        try:
            read_head(self.folder.get(name))
        except (NotFound, InvalidInput) as error:
            return str(error)
        return self.missing()

    def traits(self, name: str) -> ModelTraits:
        """What the file of a model says of it."""
        try:
            head = read_head(self.folder.get(name))
        except (NotFound, InvalidInput):
            return ModelTraits(local=True, plain=True)
        window = self._settings.local_window_tokens
        window = min(window, head.window_tokens or window)
        return ModelTraits(local=True, plain=True, window_tokens=window, parameters=head.parameters)

    async def begin(self, name: str) -> ModelProcess:
        """The process of a model, for one request; its `end` has to follow.

        Raises: ModelRequestRefused: the model is not there, or there is too little memory for it; ModelUnreachable: its
            process ends before it answers.
        """
        from perdure.features.local.process import start

        if problem := self.what_helps(name):
            raise ModelRequestRefused(problem)
        async with self._starting:
            process = self.processes.get(name)
            if process is None or not process.alive:
                await self._stop([one for one, other in self.processes.items() if one == name or not other.uses])
                settings, window = self._settings, self.traits(name).window_tokens or 0
                limits = settings.local_memory_mb, settings.local_idle_s
                process = self.processes[name] = await start(name, self.folder.get(name), window, *limits)
            process.begin()
            return process

    async def close(self) -> None:
        """End all processes and transfers."""
        for task in self.transfers.values():
            task.cancel()
        await asyncio.gather(*self.transfers.values(), return_exceptions=True)
        await self._stop(list(self.processes))

    async def get(self, model: LocalModel, progress: Progress = lambda done, total: None) -> None:
        """Fetch the file of a model. Raises: DownloadFailed, InvalidInput."""
        from perdure.features.local.download import download

        part, place = self.folder.part_of(model.name), self.folder.place_of(model.name)
        await download(model, part, place, mirror=self._settings.model_mirror, progress=progress)

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """The way of requests to the processes; part of the port `Guard`."""
        from perdure.features.local.process import LocalTransport

        return LocalTransport(self.names, self.begin)

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """Nobody calls a local model by httpx2. Raises: NotImplementedError."""
        raise NotImplementedError("local models have OpenAI's chat API")

    async def _stop(self, names: list[str]) -> None:
        """End processes: of all models, or of those that nobody uses when another one is about to need their memory."""
        for name in names:
            await self.processes.pop(name).stop()
