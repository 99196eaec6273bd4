"""What is known of a model that is here or can be fetched, and the catalogue of those that can."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model that is here, or can be fetched.

    Args:
        size_bytes, sha256: of the whole file.
        fetched_bytes: how much of it has come, where it is not here.
    """

    name: str
    about: str = ""
    licence: str = ""
    address: str = ""
    size_bytes: int = 0
    sha256: str = ""
    is_here: bool = False
    is_default: bool = False
    fetched_bytes: int = 0


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
