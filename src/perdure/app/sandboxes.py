"""The sandboxes that the settings ask for, and the reading of files in one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from perdure.core.documents import Document
from perdure.core.errors import ConversionFailed
from perdure.core.features import Point
from perdure.core.ports import Converter
from perdure.core.tools.sandbox import READING_BYTES, Sandbox
from perdure.settings import Settings

FILES_AT_ONCE = 4
"""How many files are converted at once."""

FILE_PROCESSES = 4

CONVERT: Point[[Settings, Sandbox, str, Path, Callable[[int, int], None]], Awaitable[Document]] = Point("convert")
"""Reads the file of a name in the sandbox, and says how far it is: (done, total). Raises: as `Converter`."""


def sandbox_of(settings: Settings, *, cache: Path | None = None) -> Sandbox:
    """Return the sandbox for tools, which starts at its first use; `cache`: folder for requirements, None: none."""
    from perdure.toolbox.sandbox.choose import open_sandbox

    return open_sandbox(
        settings.sandbox,
        cache=cache,
        network=settings.sandbox_network == "on",
        concurrency=settings.sandbox_concurrency,
        memory_mb=settings.sandbox_memory_mb,
        processes=settings.sandbox_processes,
        timeout_s=settings.sandbox_timeout_s,
        packages_mb=settings.sandbox_packages_mb,
        private_hosts=settings.web_allowed_hosts.split(","),
    )


def reading_sandbox_of(settings: Settings) -> Sandbox:
    """Return the sandbox that reads files and web pages, apart from that of tools: neither waits for the other."""
    from perdure.toolbox.sandbox.choose import open_sandbox

    return open_sandbox(
        settings.sandbox,
        cache=None,
        network=False,
        concurrency=FILES_AT_ONCE,
        memory_mb=READING_BYTES >> 20,
        processes=FILE_PROCESSES,
    )


def requirements_folder(settings: Settings) -> Path:
    """Return the folder for the installed requirements of tools."""
    import platformdirs

    folder = (
        Path(settings.home).expanduser()
        if settings.home
        else Path(platformdirs.user_cache_dir("perdure", appauthor=False))
    )
    return folder / "requirements"


def converter_of(settings: Settings, sandbox: Sandbox) -> Converter:
    """Return the function that converts a file to text in the sandbox, within the settings' limits."""

    async def convert(name: str, file: Path, *, progress: Callable[[int, int], None]) -> Document:
        """Convert a file by the first feature that reads files; see `Converter`."""
        for document in CONVERT(settings, sandbox, name, file, progress):
            return await document
        raise ConversionFailed(name, "nothing here reads files")

    return convert
