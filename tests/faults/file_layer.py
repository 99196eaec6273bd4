"""What a power cut leaves of a folder, by a record of everything that a process wrote there and flushed.

`file_layer.c` makes the record. A write that was not flushed before the cut may be on the disk or not, whole or in
part, whatever came before and after it.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc")
ROOT = Path(__file__).resolve().parents[2]
SECTOR_BYTES = 512
HEAD = struct.Struct("<cIIQ")


@dataclass(frozen=True, slots=True)
class Operation:
    """One write ("w"), truncation ("t"), flush ("s"), flush that failed ("f"), removal ("u") or line told ("o")."""

    kind: str
    path: str
    offset: int
    data: bytes


def layer_variables(root: Path, record: Path, *, fail_flush: int = 0, disk: Path | None = None) -> dict[str, str]:
    """The environment of a process whose writes below `root` are recorded.

    Args:
        disk: a file that says what the disk is while it does: "full", "readonly".
    """
    assert COMPILER is not None
    library = record.with_name("file_layer.so")
    source = Path(__file__).with_suffix(".c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return {
        "LD_PRELOAD": str(library),
        "FILE_LAYER_ROOT": str(root.resolve()),
        "FILE_LAYER_LOG": str(record),
        "FILE_LAYER_FAIL": str(fail_flush),
        **({} if disk is None else {"FILE_LAYER_DISK": str(disk)}),
    }


def run_recorded(
    module: str,
    arguments: Sequence[str],
    *,
    root: Path,
    record: Path,
    text: str,
    fail_flush: int = 0,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """`python -m module`, with what it does to the files below `root` recorded; `text` is its input.

    Args:
        fail_flush: which flush of a write-ahead log fails, counted from 1; 0: none.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        **layer_variables(root, record, fail_flush=fail_flush),
    }
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, env=environment, timeout=timeout_s, check=False
    )


def read_record(record: Path) -> list[Operation]:
    data, at, found = record.read_bytes(), 0, []
    while at < len(data):
        kind, path_length, size, offset = HEAD.unpack_from(data, at)
        at += HEAD.size
        path = data[at : at + path_length].decode()
        at += path_length
        found.append(Operation(kind.decode(), path, offset, data[at : at + size]))
        at += size
    return found


def lines_told(operations: Sequence[Operation]) -> list[str]:
    """The lines that stood on standard output by then."""
    return b"".join(one.data for one in operations if one.kind == "o").decode().splitlines()


def write_cut(
    operations: Sequence[Operation], before: Path, after: Path, chance: random.Random, *, share: float | None = None
) -> None:
    """Fill the folder `after` with what is left of `before` when the power goes after these operations.

    Args:
        before: the folder as it was when the process began, all of it flushed.
        share: of the writes that were not flushed, how many are left; None: none, half or most of them.
    """
    files = {str(path.resolve()): bytearray(path.read_bytes()) for path in before.iterdir()}
    waiting: dict[str, list[Operation]] = {}
    for one in operations:
        if one.kind == "s":
            for write in waiting.pop(one.path, ()):
                _apply(files, write)
        elif one.kind == "u":
            files.pop(one.path, None)
            waiting.pop(one.path, None)
        elif one.kind in "wt":
            waiting.setdefault(one.path, []).append(one)
    share = chance.choice((0.0, 0.5, 0.9)) if share is None else share
    for path, writes in waiting.items():
        files.setdefault(path, bytearray())
        for write in writes:
            for part in _sectors(write) if chance.random() < 0.1 else (write,):
                if chance.random() < share:
                    _apply(files, part)
    after.mkdir()
    for path, content in files.items():
        (after / Path(path).name).write_bytes(content)


def _apply(files: dict[str, bytearray], one: Operation) -> None:
    content = files.setdefault(one.path, bytearray())
    if one.kind == "t":
        del content[one.offset :]
    missing = one.offset + len(one.data) - len(content)
    if one.kind == "w":
        content.extend(bytes(max(0, missing)))
        content[one.offset : one.offset + len(one.data)] = one.data


def _sectors(one: Operation) -> list[Operation]:
    starts = range(0, len(one.data), SECTOR_BYTES)
    return [Operation(one.kind, one.path, one.offset + at, one.data[at : at + SECTOR_BYTES]) for at in starts] or [one]
