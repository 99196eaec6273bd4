"""The sandboxes that the settings ask for, and the reading of files in one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from perdure.core.documents import Document
from perdure.core.errors import FileEncodingInvalid
from perdure.core.ports import Converter
from perdure.core.tools.sandbox import Sandbox
from perdure.settings import Settings

FILES_AT_ONCE = 4
"""How many files are converted at once."""

FILE_PROCESSES = 4


def sandbox_of(settings: Settings, *, cache: Path | None = None) -> Sandbox:
    """The sandbox for the code of tools. It starts no process before its first use. Requirements go into `cache`."""
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
    """The sandbox that reads uploaded files and web pages. It is separate from that of tools, so that neither waits for
    the other, and has the memory limit of files."""
    from perdure.converters.limits import Limits
    from perdure.toolbox.sandbox.choose import open_sandbox

    return open_sandbox(
        settings.sandbox,
        cache=None,
        network=False,
        concurrency=FILES_AT_ONCE,
        memory_mb=Limits().memory_bytes >> 20,
        processes=FILE_PROCESSES,
    )


def requirements_folder(settings: Settings) -> Path:
    """The folder of the installed requirements of tools."""
    import platformdirs

    folder = (
        Path(settings.home).expanduser()
        if settings.home
        else Path(platformdirs.user_cache_dir("perdure", appauthor=False))
    )
    return folder / "requirements"


def check_file(name: str, head: bytes) -> str:
    """Check the name and first bytes of a file, and return its safe name: a path below its folder.

    Raises: FileNameInvalid; FileTypeUnsupported: such files can't be converted to text.
    """
    from perdure.converters.kinds import kind_of, safe_path
    from perdure.converters.limits import Refusal

    safe = safe_path(name)
    with contextlib.suppress(Refusal):  # a damaged file gets its error when it is read
        kind_of(safe, head)
    return safe


def copy_as_utf8(name: str, stream: BinaryIO, target: BinaryIO, encoding: str) -> None:
    """Write the text of a file that is in this encoding to `target` as UTF-8. Raises: FileEncodingInvalid."""
    from perdure.converters.charset import write_as_utf8
    from perdure.converters.kinds import SUFFIXES

    if name.lower().endswith((*SUFFIXES["pdf"], *SUFFIXES["docx"], *SUFFIXES["xlsx"])):
        raise FileEncodingInvalid(encoding, f"{name[:80]!r} is no text file, and says itself how it is read")
    write_as_utf8(stream, target, encoding)


def name_text(name: str) -> str:
    """The name under which a file's text becomes a file: its own name if it is text as it is, else with `.md` behind
    it."""
    from perdure.converters.kinds import SUFFIXES

    suffixes = (*SUFFIXES["text"], *SUFFIXES["markdown"], *SUFFIXES["code"])
    return name if name.lower().endswith(suffixes) else f"{name}.md"


def converter_of(settings: Settings, sandbox: Sandbox) -> Converter:
    """The function that converts a file to text in the sandbox, within the settings' limits."""

    async def convert(name: str, file: Path, *, progress: Callable[[int, int], None]) -> Document:
        from perdure.converters.convert import convert_file
        from perdure.converters.limits import Limits

        limits = Limits(file_bytes=settings.file_limit_bytes)
        return await convert_file(name, file, limits=limits, progress=progress, sandbox=sandbox)

    return convert
