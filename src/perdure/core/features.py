"""What a capability plugs into the kernel: each is a folder of `perdure.features`, whose `feature.py` has a `FEATURE`.

The kernel imports none of them, and works without. What a feature names is a text, and is imported when it is used.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """Commands of a noun of the command line.

    Args:
        modules: those that hold its verbs.
        help: what its help says; empty: the noun is another's, which gets these verbs too.
    """

    modules: Sequence[str]
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One capability. Modules are named from `perdure.features.NAME`, such as `routes` or `pages:SECTION`.

    Args:
        name: that of its folder.
        nouns: noun of the command line -> its commands.
        routes: modules with a `router` of the HTTP API.
        sections: page of the dashboard -> the `Section` that it shows as well.
        tools: a module whose functions of these names are memory tools, and beside it a `NAME.toml` that describes them
            as `core/tools/engine_tools.toml` does.
        models: what makes the models that this process serves itself, of the settings.
    """

    name: str
    nouns: Mapping[str, Noun] = field(default_factory=dict)
    routes: Sequence[str] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    tools: str = ""
    models: str = ""

    @property
    def package(self) -> str:
        """The package of its folder."""
        return f"perdure.features.{self.name}"

    @property
    def tool_file(self) -> Path:
        """The file that describes its tools."""
        return Path(__file__).parents[1] / "features" / self.name / f"{self.tools}.toml"

    def load(self, reference: str) -> Any:
        """The module, or the name in one, that a reference means."""
        module, _, name = reference.partition(":")
        found = import_module(f"{self.package}.{module}")
        return getattr(found, name) if name else found


@functools.cache
def find_features() -> Sequence[Feature]:
    """All features that are there, in the order of their names."""
    folder = Path(__file__).parents[1] / "features"
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if module.ispkg)
    return [import_module(f"perdure.features.{name}.feature").FEATURE for name in names]
