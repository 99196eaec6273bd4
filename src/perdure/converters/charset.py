"""Decode bytes: by byte order mark, by the declared encoding, as UTF-8, else by the most plausible guess.

A guess is judged by how many of the characters above ASCII are among the most frequent ones of the languages that are
written in that encoding.
"""

from __future__ import annotations

import codecs
import re

from perdure.converters.limits import Refusal

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

_HAN = frozenset(
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已"
    "這個們為來說時過會學對後麼還發無開經頭國裡點從現動進長樣實問關機"
)
_HANGUL = frozenset("이다는을의에가고하지로한은서도를어나사그리기으아자인있대시해일게니라안들것수보만여주정부과전상와")
_CYRILLIC = frozenset("оеаинтсрвлкмдпуяыьгзбчйхжшюцщэ")
_WESTERN = frozenset("äöüßÄÖÜéèêëàâçîïôùûœÉÀñáíóúÑ¿¡ãõåøæÅØÆìòÇ’‘“”–—…€°§«»· ")

# Encodings to guess, in this order.
_GUESSES = ("cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1251", "koi8_r", "cp1252")
_SHARE_MIN = 0.15
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CONTROL_SHARE = 0.02


def decode(data: bytes) -> tuple[str, str]:
    """The text of `data`, with line feeds as its only line ends, and a warning, which is empty if nothing was guessed.

    Raises: Refusal: it is not text.
    """
    text, warning = _decode_bytes(data)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    controls = len(_CONTROLS.findall(text, 0, SAMPLE_BYTES))
    if "\0" in text or controls > max(8, _CONTROL_SHARE * min(len(text), SAMPLE_BYTES)):
        raise Refusal("it is not text: it holds NUL or control characters, as binary files do")
    return text, warning


def _decode_bytes(data: bytes) -> tuple[str, str]:
    """The text, with its own line ends, and a warning. Raises: Refusal."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding), ""
            except UnicodeDecodeError as error:
                raise Refusal(
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
        raise Refusal("it is not text: it holds NUL or control characters, as binary files do")
    if match := _DECLARED.search(data, 0, 2_048):
        declared = match[1].decode("ascii").lower()
        if declared not in {"utf-8", "utf8"} and (text := _decode_as(data, declared)) is not None:
            return text, ""
    if damaged:
        return damaged, "its UTF-8 is damaged: what can't be read is shown as \ufffd"
    best, best_share, best_encoding = "", 0.0, ""
    for encoding in _GUESSES:
        text = _decode_as(data, encoding)
        if text is not None and (share := _typical_share(text[:SAMPLE_BYTES], encoding)) > best_share:
            best, best_share, best_encoding = text, share, encoding
    if best_share >= _SHARE_MIN:
        return best, f"read as {best_encoding}, guessed from its characters"
    return data.decode("latin-1"), "read as latin-1, since nothing tells its encoding"


def _damaged_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """The text if all but a few bytes are UTF-8; else empty."""
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
    """The text; None if it is not in this encoding, or files do not use this encoding."""
    try:
        return data.decode(encoding) if _FOR_FILES.match(codecs.lookup(encoding).name) else None
    except (UnicodeError, LookupError):
        return None


def _typical_share(text: str, encoding: str) -> float:
    """The share, 0 to 1, of the characters above ASCII that are frequent in the languages of this encoding."""
    high = [character for character in text if character > "\x7f"]
    if not high:
        return 0.0
    match encoding:
        case "cp932" | "euc_jp":
            # Half-width kana are a sign of a wrong guess.
            typical = sum("\u3041" <= character <= "\u30fe" for character in high)
        case "gb18030" | "big5":
            typical = sum(character in _HAN or character in "，。、：；！？“”" for character in high)
        case "cp949":
            typical = sum(character in _HANGUL for character in high)
        case "cp1251" | "koi8_r":
            typical = sum(character in _CYRILLIC for character in high)
            typical = typical if len(high) > len(text) // 4 else 0  # else a few accents in Latin text
        case _:
            typical = sum(character in _WESTERN for character in high)
            typical = typical if len(high) <= len(text) // 2 else 0
    return typical / len(high)
