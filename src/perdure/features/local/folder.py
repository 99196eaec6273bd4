"""The folder of model files, `NAME.gguf` each, fetched or a link to a file elsewhere; and what can be fetched."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.core.errors import InvalidInput, NotFound
from perdure.features.local.gguf import read_head

SUFFIX = ".gguf"
DEFAULT = "default"
"""The file that holds the name of the default model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model that is here, or can be fetched.

    Args:
        size_bytes, sha256: of the whole file.
        fetched_bytes: how much of it has come, where it is not here.
    """

    name: str
    title: str = ""
    about: str = ""
    licence: str = ""
    address: str = ""
    size_bytes: int = 0
    sha256: str = ""
    is_here: bool = False
    is_default: bool = False
    fetched_bytes: int = 0

    @property
    def size(self) -> str:
        """Its size as people write it."""
        return f"{self.size_bytes / 1e9:.1f} GB"


@functools.cache
def catalogue() -> Mapping[str, LocalModel]:
    """Name -> model, of those that ship with the package as data."""
    entries = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    return {name: LocalModel(name=name, **entry) for name, entry in entries.items()}


def known_model(name: str) -> LocalModel:
    """A model of the catalogue. Raises: NotFound."""
    if (model := catalogue().get(name)) is None:
        raise NotFound("model", name, hint=f"{', '.join(catalogue())} can be fetched")
    return model


class ModelFolder:
    """The model files of a data folder.

    Args:
        path: it is made with the first file.
        setting: a file elsewhere, or the name of one here; it is the default.
    """

    def __init__(self, path: Path, setting: str = "") -> None:
        self.path, self.setting = path, setting

    def files(self) -> Mapping[str, Path]:
        """Name -> file of the models that are here."""
        found = [file for file in self.path.glob(f"[!.]*{SUFFIX}") if file.is_file()]
        elsewhere = Path(self.setting).expanduser()
        if elsewhere.suffix == SUFFIX and elsewhere.is_file():
            found.append(elsewhere)
        # Its other parts, if it has some, lie beside the file itself.
        return {_name(file): file.resolve() for file in sorted(found, key=_name)}

    def models(self) -> list[LocalModel]:
        """The models that can be fetched, and the others that are here."""
        files, default = self.files(), self.default
        models = [*catalogue().values(), *(LocalModel(name=name) for name in files if name not in catalogue())]
        return [
            replace(
                model,
                size_bytes=files[model.name].stat().st_size if model.name in files else model.size_bytes,
                is_here=model.name in files,
                is_default=model.name == default,
                fetched_bytes=part.stat().st_size if (part := self.part_of(model.name)).exists() else 0,
            )
            for model in models
        ]

    def get(self, name: str) -> Path:
        """The file of a model. Raises: NotFound: with what helps."""
        files = self.files()
        if name in files:
            return files[name]
        if self.setting and name == self.default and name not in catalogue():
            helps = f"PERDURE_LOCAL_MODEL is {self.setting!r}, and there is no such file"
        elif name in catalogue():
            helps = f"`perdure model get {name}` fetches it"
        else:
            helps = f"there are {', '.join(files)}" if files else "`perdure model list` shows all"
        raise NotFound("model", name, hint=helps)

    def place_of(self, name: str) -> Path:
        """Where the file of a model has its place."""
        return self.path / f"{name}{SUFFIX}"

    def part_of(self, name: str) -> Path:
        """Where it is until it is whole."""
        return self.path / f"{name}{SUFFIX}.part"

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
        """Make a model the default, and return its name; a file elsewhere gets a link.

        Raises: NotFound; InvalidInput: it is no model file, or another one has its name.
        """
        name, file = name_or_file.removeprefix("local/"), Path(name_or_file).expanduser()
        is_file = name not in self.files() and file.suffix == SUFFIX
        file = file.resolve() if is_file else self.get(name)
        read_head(file)
        self.path.mkdir(parents=True, exist_ok=True)
        if is_file:
            name = _name(file)
            place = self.place_of(name)
            if place.exists() and place.resolve() != file:
                raise InvalidInput(f"there is another model {name!r}: `perdure model remove {name}`, or rename {file}")
            place.unlink(missing_ok=True)
            place.symlink_to(file)
        new = self.path / f"{DEFAULT}.new"
        new.write_text(f"{name}\n", encoding="utf-8")
        new.replace(self.path / DEFAULT)
        return name

    def removable(self, name: str) -> Path:
        """The file that goes with a model: one that was fetched, wholly or in part, or the link to one elsewhere.

        Raises: NotFound; InvalidInput: it is that of the setting, which names its file.
        """
        place, part = self.place_of(name), self.part_of(name)
        if name in catalogue() and part.exists():
            return part
        self.get(name)
        if not place.exists():
            raise InvalidInput(f"{name} is the file of PERDURE_LOCAL_MODEL, {self.setting}: unset that instead")
        return place

    def remove(self, name: str) -> bool:
        """Remove a model; return whether its file is gone: one elsewhere stays. Raises: as `removable`."""
        file = self.removable(name)
        is_link = file.is_symlink()
        file.unlink()
        if not self.setting and not self.default:  # it was this one
            (self.path / DEFAULT).unlink(missing_ok=True)
        return not is_link


def _name(file: Path) -> str:
    return file.name.removesuffix(SUFFIX)
