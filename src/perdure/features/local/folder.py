"""The folder of model files: `NAME.gguf` each, fetched or a link to a file elsewhere, and which one is the default."""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import InvalidInput, NotFound
from perdure.features.local.gguf import read_head

SUFFIX = ".gguf"
PART = ".part"
DEFAULT = "default"
"""The file that holds the name of the default model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """A model that can be fetched.

    Args:
        sha256: of the whole file, in hexadecimal; empty: nobody has said, so only its form is checked.
        size_bytes: 0: unknown.
    """

    name: str
    address: str
    title: str = ""
    about: str = ""
    licence: str = ""
    size_bytes: int = 0
    sha256: str = ""


@functools.cache
def catalogue() -> Mapping[str, CatalogueModel]:
    """Name -> model, of those that ship with the package as data."""
    entries = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    return {name: CatalogueModel(name=name, **entry) for name, entry in entries.items()}


def _is_model(file: Path) -> bool:
    return file.suffix == SUFFIX and not file.name.startswith(".") and file.is_file()


class ModelFolder:
    """The model files of a data folder.

    Args:
        path: it is made with the first file.
        setting: a file elsewhere, or the name of one here; it is the default.
    """

    def __init__(self, path: Path, setting: str = "") -> None:
        self.path, self.setting = path, setting

    def names(self) -> tuple[str, ...]:
        """The names of the models whose files are here, in order."""
        found = {self._setting_name} if self._setting_file is not None and self._setting_file.is_file() else set()
        with contextlib.suppress(OSError):
            found |= {file.stem for file in self.path.iterdir() if _is_model(file)}
        return tuple(sorted(found))

    def find(self, name: str) -> Path | None:
        """The file of a model, behind its link; None: there is none."""
        file = self._setting_file if name == self._setting_name else None
        file = file or self.file_of(name)
        # Its other parts, if it has some, lie beside the file itself.
        return file.resolve() if file.is_file() else None

    def fetched_bytes(self, name: str) -> int:
        """How much of a model has been fetched that is not whole yet."""
        file = self.file_of(name)
        try:
            return file.with_name(f"{file.name}{PART}").stat().st_size
        except OSError:
            return 0

    def get(self, name: str) -> Path:
        """The file of a model. Raises: NotFound: with what helps."""
        if (file := self.find(name)) is not None:
            return file
        helps = f"`perdure model get {name}` fetches it" if name in catalogue() else ""
        have = ", ".join(self.names())
        raise NotFound("model", name, hint=helps or (f"there are {have}" if have else "`perdure model list` shows all"))

    def file_of(self, name: str) -> Path:
        """Where the file of a model has its place. Raises: InvalidInput: no file can have this name."""
        if not name or "/" in name or name.startswith(".") or not name.isprintable():
            raise InvalidInput(f"{name!r} is no name of a model: give letters and digits, such as small")
        return self.path / f"{name}{SUFFIX}"

    @property
    def default(self) -> str:
        """The name of the model that a person chose; empty: nobody did."""
        if self.setting:
            return self._setting_name
        try:
            name = (self.path / DEFAULT).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""
        return name if name in self.names() else ""

    def use(self, name_or_file: str) -> str:
        """Make a model the default, and return its name; a file elsewhere gets a link.

        Raises: NotFound; InvalidInput: it is no model file, or another one has its name.
        """
        name, path = name_or_file.removeprefix("local/"), Path(name_or_file).expanduser()
        if name in self.names():
            read_head(self.get(name))
        elif path.suffix == SUFFIX or path.is_file():
            name = self._link(path)
        else:
            self.get(name)
        self._write_default(name)
        return name

    def remove(self, name: str) -> bool:
        """Remove a model from the folder, with what was fetched of it. Return whether its file is gone too, which
        stays where it was only linked. Raises: NotFound."""
        self.check_removable(name)
        file = self.file_of(name)
        part = file.with_name(f"{file.name}{PART}")
        was_default, is_link = self.default == name, file.is_symlink()
        file.unlink(missing_ok=True)
        part.unlink(missing_ok=True)
        if was_default and not self.setting:
            (self.path / DEFAULT).unlink(missing_ok=True)
        return not is_link

    def check_removable(self, name: str) -> None:
        """Raises: NotFound: there is no such model; InvalidInput: it is that of the setting, which names its file."""
        file = self.file_of(name)
        if not file.is_symlink() and not file.exists() and not self.fetched_bytes(name):
            self.get(name)
            raise InvalidInput(f"{name} is the file of PERDURE_LOCAL_MODEL, {self.setting}: unset that instead")

    def _link(self, file: Path) -> str:
        """Link a file elsewhere, and return its name."""
        file = file.resolve()
        read_head(file)
        place = self.file_of(file.stem)
        if place.exists() and place.resolve() != file:
            raise InvalidInput(
                f"there is another model {file.stem!r}: `perdure model remove {file.stem}`, or rename {file}"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(file)
        return file.stem

    def _write_default(self, name: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f"{DEFAULT}.new"
        new.write_text(f"{name}\n", encoding="utf-8")
        new.replace(self.path / DEFAULT)

    @property
    def _setting_file(self) -> Path | None:
        """The file that the setting names; None: it names a model of the folder."""
        if not self.setting or (self.setting in catalogue() or (self.path / f"{self.setting}{SUFFIX}").exists()):
            return None
        return Path(self.setting).expanduser()

    @property
    def _setting_name(self) -> str:
        file = self._setting_file
        return self.setting if file is None else file.stem if file.suffix == SUFFIX else file.name
