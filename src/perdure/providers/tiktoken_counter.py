"""Token counts by the `tiktoken` package, from ranks that are on disk: nothing is ever downloaded.

The encoding is o200k, that of OpenAI's models since GPT-4o. For them counts are exact; for models of others they are an
estimate in both directions, which the provider's `usage` corrects.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.errors import InvalidInput, file_errors

if TYPE_CHECKING:
    from tiktoken import Encoding

CACHE_VARIABLES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
"""The folders that tiktoken itself keeps ranks in; without either one in the folder for temporary files."""

RANKS_FILES = ("fb374d419588a4632f3f557e76b4b70aebbca790", "o200k_base.tiktoken")
"""The file names of the ranks: in tiktoken's cache (the SHA-1 of their address), and as published."""

_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# How text is cut before pairs are merged, as in tiktoken_ext.openai_public, whose own loader would download.
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CUT = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

_CHUNK_CHARS = 50_000


class TiktokenCounter:
    """`TokenCounter` by o200k. What looks like a special token is counted as the text it is.

    A text of more than 50,000 characters is counted in parts of that length, since one word without end takes more than
    linear time. Each cut may add a token or two.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    @classmethod
    def from_disk(cls, environment: Mapping[str, str] | None = None) -> TiktokenCounter:
        """The counter by the ranks in tiktoken's cache; takes about a second and 65 to 87 MB.

        Raises: InvalidInput: tiktoken is not installed, or its ranks are not there or not whole.
        """
        try:
            from tiktoken import Encoding
        except ImportError as error:
            raise InvalidInput("PERDURE_TOKEN_COUNTER=tiktoken needs tiktoken: install 'perdure[tiktoken]'") from error
        path = _find_ranks(os.environ if environment is None else environment)
        return cls(Encoding("o200k_base", pat_str=_CUT, mergeable_ranks=_read_ranks(path), special_tokens={}))

    def count(self, text: str) -> int:
        """The number of tokens."""
        return sum(
            len(self._encoding.encode_ordinary(text[start : start + _CHUNK_CHARS]))
            for start in range(0, len(text), _CHUNK_CHARS)
        )

    def at_least(self, text: str) -> int:
        """The same number as `count`, which is exact."""
        return self.count(text)


def _find_ranks(environment: Mapping[str, str]) -> Path:
    """The file with the ranks. Raises: InvalidInput: there is none."""
    named = [folder for name in CACHE_VARIABLES if (folder := environment.get(name, "").strip())]
    folders = [*map(Path, named)] or [Path(tempfile.gettempdir()) / "data-gym-cache"]
    for path in (folder / name for folder in folders for name in RANKS_FILES):
        if path.is_file():
            return path
    raise InvalidInput(
        "PERDURE_TOKEN_COUNTER=tiktoken needs tiktoken's ranks on disk, and nothing is downloaded: there is no "
        f"{RANKS_FILES[1]} (nor {RANKS_FILES[0]}, its name in tiktoken's cache) in {' or '.join(map(str, folders))}. "
        f"Put the file into a folder and name that in {CACHE_VARIABLES[0]}, or leave PERDURE_TOKEN_COUNTER at script"
    )


def _read_ranks(path: Path) -> dict[bytes, int]:
    """Lines of a token in base64 and its rank."""
    with file_errors(path, "read"):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _RANKS_SHA256:
        raise InvalidInput(f"{path} is not o200k_base as OpenAI publishes it: it is damaged or another file")
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}
