"""The models of this machine's folder: what is known of each, and the processes that answer for them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.errors import ExtraMissing, InvalidInput, ModelRequestRefused, NotFound
from perdure.core.models import ModelTraits
from perdure.core.tasks import end_tasks
from perdure.features.local.catalogue import LocalModel, catalogue, read_head
from perdure.providers.choosing import DefaultModel
from perdure.providers.provider import Endpoint
from perdure.scratch import user_path
from perdure.settings import Settings, default_home

if TYPE_CHECKING:
    import ssl

    import httpx
    import httpx2

    from perdure.features.local.download import Progress
    from perdure.features.local.process import ModelProcess

PROVIDER = "local"
SUFFIX, PART = ".gguf", ".gguf.part"
DEFAULT = "default"
"""The file that holds the name of the default model."""


class LocalModels:
    """The local models of a process of Perdure, and the processes of llama.cpp that run them.

    A process is started by the first request, and again by the next one after it died. It ends when it is not used.

    Args:
        path: the folder of model files.
        setting: the setting `PERDURE_LOCAL_MODEL`.
        endpoint: the provider of these models, for the registry of providers; its requests come to `transport`.
        processes: name of a model -> its process, which may have ended.
        transfers: name of a model -> the task that fetches it, or has.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            home = settings.folder
        except InvalidInput:  # opening the store there reports it
            home = default_home()
        self.path, self.setting = home / "models", settings.local_model
        self.transfers: dict[str, asyncio.Task[None]] = {}
        self.processes: dict[str, ModelProcess] = {}
        self._settings = settings
        self._starting = asyncio.Lock()
        # Nothing listens at this address: `LocalTransport` sends the requests to a process.
        address, source = f"http://{PROVIDER}/v1", "`perdure model`"
        self.endpoint = Endpoint(provider=PROVIDER, base_url=address, source=source, problem=self.missing(), guard=self)

    def missing(self) -> str:
        """Return what has to be installed before a model can run, as part of a sentence; empty: nothing."""
        if find_spec("xllamacpp") is not None:
            return ""
        return f"{ExtraMissing('a model without another program', extra='local')}; in a clone, `make local`"

    def files(self) -> Mapping[str, Path]:
        """Return name -> file of the models that are here."""
        found = [file for file in self.path.glob(f"[!.]*{SUFFIX}") if file.is_file()]
        elsewhere = user_path(self.setting)
        if elsewhere.suffix.lower() == SUFFIX and elsewhere.is_file():
            found.append(elsewhere)
        # Links are resolved: further parts of a model lie beside the file itself.
        return {_name(file): file.resolve() for file in sorted(found, key=_name)}

    def models(self) -> list[LocalModel]:
        """Return the models of the catalogue, and then others that are here."""
        files, default = self.files(), self.default
        models = [*catalogue().values(), *(LocalModel(name=name) for name in files if name not in catalogue())]
        return [
            replace(
                model,
                size_bytes=files[model.name].stat().st_size if model.name in files else model.size_bytes,
                is_here=model.name in files,
                is_default=model.name == default,
                fetched_bytes=part.stat().st_size if (part := self.place_of(model.name, PART)).exists() else 0,
            )
            for model in models
        ]

    def get(self, name: str) -> Path:
        """Return the file of a model. Raises: NotFound, with what helps."""
        files = self.files()
        if name in files:
            return files[name]
        if self.setting and name == self.default and name not in catalogue():
            helps = f"PERDURE_LOCAL_MODEL is {self.setting!r}, and there is no such file"
        elif (place := self.place_of(name)).is_symlink():
            helps = f"its file {place.readlink()} is gone: put it back, or take another model"
        elif name in catalogue():
            helps = f"`perdure model get {name}` fetches it"
        else:
            helps = f"there are {', '.join(files)}" if files else "`perdure model list` shows all"
        raise NotFound("model", name, hint=helps)

    def place_of(self, name: str, suffix: str = SUFFIX) -> Path:
        """Return where the file of a model belongs in the folder; with the suffix `PART` that of an unfinished one."""
        return self.path / f"{name}{suffix}"

    @property
    def default(self) -> str:
        """The name of the model that a person chose; empty: nobody did."""
        if self.setting:
            return _name(Path(self.setting))
        try:
            name = (self.path / DEFAULT).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""
        return name if name in self.files() else ""

    def use(self, name_or_file: str) -> str:
        """Make a model, by name or file, the default, and return its name; a file outside the folder gets a link there.
        Raises: NotFound; InvalidInput: it is no model file, or another one has its name."""
        name, file = name_or_file.removeprefix("local/"), user_path(name_or_file)
        is_file = name not in self.files() and file.suffix.lower() == SUFFIX
        file = file.resolve() if is_file else self.get(name)
        read_head(file)
        self.path.mkdir(parents=True, exist_ok=True)
        if is_file:
            if (name := _name(file)).startswith("."):
                raise InvalidInput(f"{file} is a hidden file, which is no model here: rename it")
            place = self.place_of(name)
            if place.resolve() != file:
                if place.exists():
                    helps = f"`perdure model remove {shlex.quote(name)}`, or rename {file}"
                    raise InvalidInput(f"there is another model {name!r}: {helps}")
                place.unlink(missing_ok=True)  # a link that leads nowhere
                place.symlink_to(file)
        new = self.path / f"{DEFAULT}.new"
        new.write_text(f"{name}\n", encoding="utf-8")
        new.replace(self.path / DEFAULT)
        return name

    def removable(self, name: str) -> Path:
        """Return the file that `remove` removes: that of a model which was fetched, wholly or in part, or a link to a
        file. Raises: NotFound; InvalidInput: the setting names the file."""
        place, part = self.place_of(name), self.place_of(name, PART)
        if name in catalogue() and part.exists():
            return part
        if place.is_symlink():  # also where its file is gone
            return place
        self.get(name)
        if not place.exists():
            raise InvalidInput(f"{name} is the file of PERDURE_LOCAL_MODEL, {self.setting}: unset that instead")
        return place

    def remove(self, name: str) -> bool:
        """Remove a model; return whether its file is gone, which a linked one is not. Raises: as `removable`."""
        file = self.removable(name)
        is_link = file.is_symlink()
        file.unlink()
        if not self.setting and not self.default:  # it was this one
            (self.path / DEFAULT).unlink(missing_ok=True)
        return not is_link

    def names(self) -> tuple[str, ...]:
        """Return the names of the models whose files are here."""
        return tuple(self.files())

    def choice(self) -> DefaultModel | None:
        """Return the model for agents without one: one a person chose, else the first installed; or None."""
        if name := self.default:
            source = "from PERDURE_LOCAL_MODEL" if self.setting else "chosen by `perdure model use`"
            return DefaultModel(f"{PROVIDER}/{name}", source, is_setting=True)
        names = self.names()
        return DefaultModel(f"{PROVIDER}/{names[0]}", "it is on this machine") if names and not self.missing() else None

    def what_helps(self, name: str) -> str:
        """Return what makes a model available, as a sentence; empty: it is available."""
        try:
            read_head(self.get(name))
        except (NotFound, InvalidInput) as error:
            return str(error)
        return self.missing()

    def traits(self, name: str) -> ModelTraits:
        """Return what is known of a model by its file; nothing of one that can't be read."""
        try:
            head = read_head(self.get(name))
        except (NotFound, InvalidInput):
            return ModelTraits(local=True, plain=True)
        window = self._settings.local_window_tokens
        window = min(window, head.window_tokens or window)
        return ModelTraits(local=True, plain=True, window_tokens=window, parameters=head.parameters)

    async def begin(self, name: str) -> ModelProcess:
        """Return the process that serves a model, started if need be, for one request; call its `end` afterwards.
        Raises: ModelRequestRefused: the model is not installed, or memory is too small; ModelUnreachable: its process
        ended early."""
        from perdure.features.local.process import start

        if problem := self.what_helps(name):
            raise ModelRequestRefused(problem)
        async with self._starting:
            process = self.processes.get(name)
            if process is None or not process.alive:
                await self._stop([one for one, other in self.processes.items() if one == name or not other.uses])
                settings, window = self._settings, self.traits(name).window_tokens or 0
                limits = settings.local_memory_mb, settings.local_idle_s
                process = self.processes[name] = await start(name, self.get(name), window, *limits)
            process.begin()
            return process

    async def close(self) -> None:
        """End all processes and transfers."""
        await end_tasks(*self.transfers.values())
        await self._stop(list(self.processes))

    async def fetch(self, model: LocalModel, progress: Progress = lambda done, total: None) -> None:
        """Fetch the file of a model. Raises: DownloadFailed, InvalidInput."""
        from perdure.features.local.download import download

        part, place = self.place_of(model.name, PART), self.place_of(model.name)
        await download(model, part, place, mirror=self._settings.model_mirror, progress=progress)

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """Return what sends requests to the processes; part of the port `Guard`."""
        from perdure.features.local.process import LocalTransport

        return LocalTransport(self.names, self.begin)

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """Part of the port `Guard`, for clients on httpx2, which no local model needs. Raises: NotImplementedError."""
        raise NotImplementedError("local models have OpenAI's chat API")

    async def _stop(self, names: list[str]) -> None:
        """End the processes of these models: of all, or of unused ones when another needs their memory."""
        for name in names:
            await self.processes.pop(name).stop()


def _name(file: Path) -> str:
    """Return the name of the model in a file."""
    return file.stem if file.suffix.lower() == SUFFIX else file.name
