"""What the name of a model says: its version and date, and whether two names are of the same model.

Providers, hosts and files write the same model in many ways: `claude-sonnet-4-5`, `anthropic/claude-sonnet-4.5`,
`us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `claude-sonnet-4-5@20250929`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

_HOST = re.compile(r"-v?\d+:\d+(?::\w+)?$")
"""What Bedrock adds, such as `-v1:0`; for newer models of Claude it is `-v1` alone."""
_SIZE = re.compile(r"(?<![a-z0-9.])(?:[ae]?\d+(?:\.\d+)?(?:x\d+)?[bkme]|(?:bf|fp|int|[qw])\d+\w*)(?![a-z0-9])")
"""Parameters, experts, windows and bits: 70b, 8x7b, a22b, 16e, 32k, q4_k_m, fp8."""
_DATE = re.compile(
    r"(?<![\d.])(?:20\d\d-\d\d-\d\d|\d\d-20\d\d|20\d\d-\d\d|\d{4,8}|(?:0\d|1[0-2])-(?:[0-2]\d|3[01])|00\d)(?![\d.])"
)
"""2024-04-09, 09-2025, 2025-01, 20241022, 250115, 0613, 2507, 05-20; and revisions such as 002."""
_VERSION = re.compile(r"(?<![\d.])(\d{1,3})(?:(o)(?![a-z0-9])|[.-](\d{1,2})(?![a-z0-9]))?")
_EARLY = re.compile(r"preview|alpha|beta|exp(?![a-z])|experimental|(?<![a-z])rc(?![a-z])")
_UNDATED, _LATEST = "99999998", "99999999"


class ModelVersion(NamedTuple):
    """What orders models of a family by age.

    Args:
        number: such as (4, 5); empty: the name has none.
        stable: whether it is no preview.
        date: YYYYMMDD, the year 0000 if the name has none; one without a date is newer, `latest` the newest.
    """

    number: tuple[int, ...]
    stable: bool
    date: str


def version_of(handle: str) -> ModelVersion:
    """Return the version in the name of a model."""
    name, dates, _ = _split(handle)
    date = _LATEST if "latest" in handle.lower() else max(dates, default=_UNDATED)
    is_early = _EARLY.search(handle.rpartition("/")[2].lower()) is not None
    return ModelVersion(_number_in(_SIZE.sub("", name)), not is_early, date)


def is_same_model(handle: str, name: str) -> bool:
    """Return whether a handle is of the model with this name, but for provider, region and what a host adds. Without a
    date the name is that of all of its dates."""
    (own, dates, tag), (wanted, wanted_dates, wanted_tag) = _split(handle), _split(name)
    words, name_words = _words(own), _words(wanted)
    if tag != wanted_tag or not f".{words}".endswith(f".{name_words}"):
        return False
    before = words.removesuffix(name_words)
    if re.search(r"\d", before) or not re.search(r"[a-z].*\d", name_words):  # `pro-preview`, `4-5`
        return False
    return not dates or not wanted_dates or dates == wanted_dates


@functools.lru_cache(maxsize=4_096)
def _split(handle: str) -> tuple[str, Sequence[str], str]:
    """(The last part of a handle without dates, tag, and what a host adds, in lower case; its dates; its tag)."""
    name, _, tag = _HOST.sub("", handle.rpartition("/")[2].lower()).partition(":")
    name = re.sub(r"(claude.*)-v\d$", r"\1", name.replace("gpt-35", "gpt-3.5"))  # as Azure writes it
    name = re.sub(r"(?<=[a-z]\d)p(?=\d)", ".", name)  # as Fireworks writes a point
    dates = [one for one in map(_day, _DATE.findall(name)) if one]
    return _DATE.sub("", name), dates, tag.removeprefix("latest")


def _day(text: str) -> str:
    """The day that a date in a name stands for, as YYYYMMDD; empty: it is none, but the size of a window."""
    digits = text.replace("-", "")
    if text[2:3] == "-" and len(digits) == 6:
        digits = f"{digits[2:]}{digits[:2]}00"
    elif len(digits) == 6:
        digits = f"{digits}00" if digits.startswith("20") else f"20{digits}"
    elif len(digits) == 4:  # month and day, or year and month
        digits = f"0000{digits}" if digits[:2] <= "12" else f"20{digits}00"
    digits = digits.rjust(8, "0")
    return digits if len(digits) == 8 and "00" <= digits[4:6] <= "12" else ""


def _number_in(name: str) -> tuple[int, ...]:
    """The first number in a bare name. `4o` lies between 4 and 4.1; `v0.3` of a size is none."""
    if (found := _VERSION.search(name)) is None or found[1].startswith("0"):
        return ()
    if found[2]:
        return int(found[1]), 0, 1
    minor = int(found[3] or 0)
    return (int(found[1]), minor) if minor else (int(found[1]),)


def _words(name: str) -> str:
    """Return a bare model name with a dot before each word and number in it."""
    return ".".join(re.findall(r"[a-z]+|\d+", name.removesuffix("-latest")))
