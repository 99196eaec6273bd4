"""Decode bytes: by byte order mark, by the declared encoding, as UTF-8, else by the most plausible guess.

charset-normalizer tells which encodings are plausible. Among them, since it needs more text than a table of names has,
the letters decide: those of one language only, or the part of a Chinese, Japanese or Korean set with its frequent ones.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import BinaryIO

from perdure.core.errors import FileEncodingInvalid
from perdure.core.text.tables import read_table
from perdure.features.files.converters.limits import FileUnreadable

SAMPLE_BYTES = 65_536

_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding|coding)\s*[=:]\s*["']?([A-Za-z0-9._-]{2,30})""")

# Only encodings of files: a file could name a harmful one, such as idna, whose time is quadratic.
_FOR_FILES = re.compile(
    r"utf-(8|16|32)|iso8859|cp\d|koi8|gb|big5|euc_|shift_jis|iso2022|mac|latin|tis|johab|hz|hp|kz|ptcp"
)

_GUESSES = (
    *("cp1252", "cp1250", "cp1254", "cp1257", "iso8859_2", "mac_roman", "cp850", "cp852"),
    *("cp1251", "koi8_r", "koi8_u", "cp866", "cp1253", "cp1255", "cp1256", "cp874", "iso8859_6"),
    *("gb18030", "big5", "cp949", "cp932", "euc_jp"),
)
_SELDOM = frozenset({"mac_roman", "cp850", "cp852"})
_LETTERS = read_table(__file__)
_ACCENTS: Sequence[str] = _LETTERS["accents"]
_ALPHABETS: Sequence[str] = _LETTERS["alphabets"]
_SIGNS = frozenset("\xa0’‘“”„–—…€°§«»·©®£²³ №")
# Of two-byte sets the first bytes of the frequent characters, and from where their second bytes are.
_FREQUENT = {
    "gb18030": (range(0xA1, 0xA4), range(0xB0, 0xD8), 0xA1),
    "big5": (range(0xA1, 0xA4), range(0xA4, 0xC7), 0x40),
    "cp949": (range(0xA1, 0xA4), range(0xB0, 0xC9), 0xA1),
    "cp932": (range(0x81, 0x84), range(0x88, 0x98), 0x40),
    "euc_jp": (range(0xA1, 0xA6), range(0xB0, 0xD0), 0xA1),
}
_JOINED = re.compile(r"[^\W\d_](?<=[^\x00-\x7f])(?=[A-Za-z])|(?<=[A-Za-z])[^\W\d_](?<=[^\x00-\x7f])")
_BROKEN = re.compile(r"(?<=\d)[^\W\d_](?<=[^\x00-\xaa])|[^\W\d_](?<=[^\x00-\xaa])(?=\d)|(?<=[a-z])[‘“„€°§«](?=[a-z])")
_HIGH = re.compile(b"[\x80-\xff]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CONTROL_SHARE = 0.02


def decode(data: bytes) -> tuple[str, str]:
    """The text of `data`, with line feeds as its only line ends, and a warning, which is empty if nothing was guessed.

    Raises: FileUnreadable: it is not text.
    """
    text, warning = _decode_bytes(data)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    controls = len(_CONTROLS.findall(text, 0, SAMPLE_BYTES))
    if "\0" in text or controls > max(8, _CONTROL_SHARE * min(len(text), SAMPLE_BYTES)):
        raise FileUnreadable("it is not text: it holds NUL or control characters, as binary files do")
    return text, warning


def write_as_utf8(source: BinaryIO, target: BinaryIO, encoding: str) -> None:
    """Write a text in this encoding to `target` as UTF-8. Raises: FileEncodingInvalid: no such, or not its own."""
    try:
        if not _FOR_FILES.match(codecs.lookup(encoding).name):
            raise LookupError
    except (LookupError, ValueError):
        raise FileEncodingInvalid(encoding, "no encoding of files is called so") from None
    source.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while data := source.read(SAMPLE_BYTES):
            target.write(decoder.decode(data).encode())
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise FileEncodingInvalid(encoding, f"the file has bytes that are not in it ({str(error)[-80:]})") from error


def _decode_bytes(data: bytes) -> tuple[str, str]:
    """Decode bytes; return the text with its line ends, and a warning or an empty text. Raises: FileUnreadable."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding), ""
            except UnicodeDecodeError as error:
                raise FileUnreadable(
                    f"it begins as {encoding.removesuffix('-sig')}, but is damaged: {error.reason}"
                ) from error
    if b"\x1b$" in data and data.isascii() and (text := _decode_as(data, "iso2022_jp")) is not None:
        return text, ""
    if data.isascii():
        return data.decode("ascii"), ""
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        damaged = _damaged_utf8(data, error)
    if (encoding := _guess_utf16(data)) and (text := _decode_as(data, encoding)) is not None:
        return text, f"read as {encoding}, guessed from its bytes"
    if b"\0" in data[:SAMPLE_BYTES]:
        raise FileUnreadable("it is not text: it holds NUL or control characters, as binary files do")
    if match := _DECLARED.search(data, 0, 2_048):
        declared = match[1].decode("ascii").lower()
        if declared not in {"utf-8", "utf8"} and (text := _decode_as(data, declared)) is not None:
            return text, ""
    if damaged:
        return damaged, "its UTF-8 is damaged: what can't be read is shown as \ufffd"
    for encoding in _guesses(data):
        if (text := _decode_as(data, encoding)) is not None:
            return text, f"read as {encoding}, guessed from its characters: if that is wrong, upload it with `encoding`"
    return data.decode("latin-1"), "read as latin-1, since nothing tells its encoding"


def _damaged_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """Return the text if all but a few of the bytes are UTF-8, else an empty text; `error`: the first that is not."""
    if error.start == 0 or data[: error.start].isascii():
        return ""  # nothing says that it is UTF-8 at all
    text = data.decode("utf-8", errors="replace")
    return text if text.count("\ufffd") * 100 < sum(character > "\x7f" for character in text[:SAMPLE_BYTES]) else ""


def _guess_utf16(data: bytes) -> str:
    """The UTF-16 encoding of bytes without a mark, in which every other byte is often NUL. Empty: it is another one."""
    sample = data[: min(len(data), SAMPLE_BYTES) & ~1]
    if len(data) % 2 or len(sample) < 4:
        return ""
    even, odd = sample[::2].count(0) / len(sample), sample[1::2].count(0) / len(sample)
    if odd > 0.1 and even < 0.01:
        return "utf-16-le"
    return "utf-16-be" if even > 0.1 and odd < 0.01 else ""


def _decode_as(data: bytes, encoding: str) -> str | None:
    """The text of bytes; None: they are not in this encoding, or files do not use it."""
    try:
        return data.decode(encoding) if _FOR_FILES.match(codecs.lookup(encoding).name) else None
    except (UnicodeError, LookupError):
        return None


def _guesses(data: bytes) -> list[str]:
    """The encodings that the bytes may be in, the most plausible first."""
    from charset_normalizer import from_bytes  # slow to import, and seldom needed

    first = _HIGH.search(data)
    start = data.rfind(b"\n", 0, first.start()) + 1 if first else 0
    lines = b"\n".join(line for line in data[start:][: 64 * SAMPLE_BYTES].split(b"\n") if not line.isascii())
    end = max(lines.rfind(end, 0, SAMPLE_BYTES) for end in (b"\n", b" ")) if len(lines) > SAMPLE_BYTES else len(lines)
    matches = from_bytes(
        lines[: end if end > 0 else SAMPLE_BYTES], cp_isolation=list(_GUESSES), enable_fallback=False, threshold=0.4
    )
    scores = {
        encoding: _plausibility(str(match), encoding)
        + 0.1 * match.coherence
        - 0.2 * match.chaos
        - 0.35 * (encoding in _SELDOM)
        for match in matches
        for encoding in _GUESSES
        if encoding in match.could_be_from_charset
    }
    best = sorted(scores, key=lambda encoding: (-scores[encoding], _GUESSES.index(encoding)))
    known = [encoding for encoding in best if scores[encoding] > 0]
    # A language that has no letters here is left to the detector.
    return known or [match.encoding for match in matches if match.coherence > 0]


def _plausibility(text: str, encoding: str) -> float:
    """How well the characters above ASCII fit languages of this encoding: at most 1, below 0 if most do not."""
    text = text.replace("İ", "ı")
    counts = Counter(character for character in text if character > "\x7f")
    total = counts.total() or 1
    flips = sum(one.islower() and two.isupper() for one, two in pairwise(text) if one > "\x7f" or two > "\x7f")
    if encoding in _FREQUENT:
        signs, frequent_ones, second_from = _FREQUENT[encoding]
        score = 0.0
        for character, count in counts.items():
            code = character.encode(encoding)
            # One sign and one ASCII letter, such as °C, are no character.
            least = second_from if total > 2 else 0x80
            frequent = len(code) == 2 and (code[0] in signs or code[0] in frequent_ones) and code[1] >= least
            kana = "\u3041" <= character <= "\u30fe" and encoding in {"cp932", "euc_jp"}
            score += count * (0.95 if kana else 0.85 if frequent else -0.6)
        return score / total - 0.3 * len(_JOINED.findall(text)) / total
    tables = [dict.fromkeys(letters, 0.8 - 0.003 * at) for at, letters in enumerate(_ACCENTS)]
    best = max(_mean(counts, weights) for weights in tables)
    if total >= 3:  # one or two accents among Latin letters are no word of another alphabet
        joined = len(_JOINED.findall(text)) / total
        tables = [{letter: 1 - at / len(letters) / 2 for at, letter in enumerate(letters)} for letters in _ALPHABETS]
        best = max(best, *(_mean(counts, weights) - joined for weights in tables))
    return best - (flips + len(_BROKEN.findall(text))) / total


def _mean(counts: Counter[str], weights: Mapping[str, float]) -> float:
    """Return the mean weight of characters, counted by occurrence; unlisted signs weigh 0.5, other characters -1."""
    whole = sum(
        count * weights.get(character.lower(), 0.5 if character in _SIGNS else -1.0)
        for character, count in counts.items()
    )
    return whole / (counts.total() or 1)
