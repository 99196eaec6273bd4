"""One reader for each program that people come from; `reader_of` imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import ImportSource, SourceItem


def reader_of(source: ImportSource) -> Callable[[SourceFiles], Iterator[SourceItem]]:
    """Return the function that yields what the files of an export hold. It raises InvalidInput."""
    module = import_module(f"{__name__}.{source.replace('-', '_')}")
    read: Callable[[SourceFiles], Iterator[SourceItem]] = module.read
    return read
