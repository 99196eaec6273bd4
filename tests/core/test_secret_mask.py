"""The value of a secret is found in what a tool gave back, however it is written."""

from __future__ import annotations

import base64
import json
import random
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.secrets import MASKED_CHARS_MIN, SecretMask

SECRET = "k3y/ü+\"\\ 字🧭'&%41"
VALUES = st.text(min_size=MASKED_CHARS_MIN, max_size=40).filter(lambda text: len(text.strip()) >= MASKED_CHARS_MIN)
ENCODABLE = VALUES.filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text))


def masked(text: str, value: str = SECRET) -> str:
    return SecretMask({value: "KEY"}).text(text)


@given(ENCODABLE, st.binary(max_size=5), st.binary(max_size=5), st.booleans())
def test_base64_is_found_at_any_offset(value: str, before: bytes, after: bytes, url_safe: bool) -> None:
    """In both alphabets, whatever stands around it; nothing that holds a whole byte of it is left."""
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    encoded = encode(before + value.encode() + after).decode()
    hidden = masked(f"x {encoded} y", value)

    assert hidden.startswith("x ") and "[secret KEY]" in hidden
    left = hidden.replace("[secret KEY]", "").replace("x ", "").replace(" y", "").rstrip("=")
    assert len(left) <= len(encode(before)) + len(encode(after))


@given(ENCODABLE, st.randoms(use_true_random=False))
def test_percent_encoding_is_found_in_whole_and_in_part(value: str, chance: random.Random) -> None:
    """Each byte or only some, in upper or lower digits; a space may be a plus."""
    parts = []
    for one in value:
        code = "".join(f"%{byte:02x}" if chance.random() < 0.5 else f"%{byte:02X}" for byte in one.encode())
        parts.append(code if not one.isascii() or one == "%" or chance.random() < 0.5 else one)
    for text in ("".join(parts), quote(value), quote(value, safe=""), quote_plus(value)):
        assert masked(f"http://x/?a={text}&b", value) == "http://x/?a=[secret KEY]&b"


@given(ENCODABLE, st.randoms(use_true_random=False))
def test_json_escapes_are_found(value: str, chance: random.Random) -> None:
    """Those that a writer must use, and those that it may: a slash, any character by its number."""
    parts = []
    for one in value:
        units = one.encode("utf-16-be").hex()
        number = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        number = number if chance.random() < 0.5 else number.upper().replace("\\U", "\\u")
        plain = "\\/" if one == "/" and chance.random() < 0.5 else json.dumps(one, ensure_ascii=False)[1:-1]
        parts.append(number if chance.random() < 0.5 else plain)
    assert json.loads(f'"{"".join(parts)}"') == value

    assert masked(f'{{"a":"{"".join(parts)}"}}', value) == '{"a":"[secret KEY]"}'


@given(ENCODABLE)
def test_the_value_as_bytes_is_found(value: str) -> None:
    """As Python shows what a program wrote."""
    assert masked(str({"out": value.encode()}), value) in ("{'out': b'[secret KEY]'}", "{'out': b\"[secret KEY]\"}")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", "\n    "])
@pytest.mark.parametrize("offset", range(40, 64))
def test_base64_over_lines_is_found(end: str, offset: int) -> None:
    """As mail and keys are written: the break may be anywhere in it."""
    encoded = base64.b64encode(b"x" * offset + SECRET.encode() + b"y" * 9).decode()
    lines = end.join(encoded[at : at + 64] for at in range(0, len(encoded), 64))

    hidden = masked(f"-- {lines} --")

    assert "[secret KEY]" in hidden
    assert hidden.startswith("-- ") and hidden.endswith(" --")
    plain = base64.b64encode(SECRET.encode()[1:-3]).decode()[2:-4]
    assert plain not in hidden.replace(end, "")


def test_other_text_stays_as_it_is() -> None:
    """What only looks like an encoding, and values that are too short to hide."""
    text = 'a %zz %4 \\q \\u12 \\ud800 %ff%fe QUJD\n"\\n" 100% \\'
    assert masked(text) == text
    assert SecretMask({"short": "KEY", "": "NO"}).text("short c2hvcnQ= %73hort") == "short c2hvcnQ= %73hort"
    assert SecretMask({}).text(text) == text


def test_the_longer_of_two_secrets_counts() -> None:
    """One may stand in the other, or begin where the other ends."""
    mask = SecretMask({"secret-one": "A", "my-secret-one-too": "B", "one-too-many": "C"})

    assert mask.text("my-secret-one-too secret-one") == "[secret B] [secret A]"
    assert mask.text("my-secret-one-too-many!") == "[secret B]!"
    assert mask.value({"secret-one": ["x", {"a": "my%2Dsecret-one-too"}, 1]}) == {
        "[secret A]": ["x", {"a": "[secret B]"}, 1]
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["%41", "\\u0041", "\\\\", "A\n", "%", "\\", "secret-valu", "c2VjcmV0LXZhbHV", "%73ecret-valu"]
)
def test_the_time_is_linear_in_the_text(part: str) -> None:
    """Of many escapes, of line breaks, of beginnings of the value."""
    mask = SecretMask({"secret-value": "KEY", "\\" * 40: "BACKSLASHES", "%" * 40: "PERCENTS", "A" * 40: "LETTERS"})

    def seconds(times: int) -> float:
        text = (part * times) + "x"
        began = time.thread_time()
        mask.text(text)
        return time.thread_time() - began

    few, many = (min(seconds(times) for _ in range(3)) for times in (2_000, 16_000))

    assert many < 30 * max(few, 0.002)
