"""Bodies from outside are unpacked and read no further than a limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.incoming.bodies import read_body, unpack


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("", bytes),
    ("identity", bytes),
    ("gzip", gzip.compress),
    (" GZIP ", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare),
]


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
@given(
    data=st.binary(max_size=300) | st.integers(0, 3_000).map(bytes), size=st.integers(1, 50), less=st.integers(1, 50)
)
async def test_a_body_is_read_up_to_its_limit(
    encoding: str, pack: Callable[[bytes], bytes], data: bytes, size: int, less: int
) -> None:
    """However it is packed and cut; of one that is longer the beginning is given before the error."""
    assert await read_body(pieces(pack(data), size), encoding, len(data)) == data
    if data:
        limit = max(0, len(data) - less)
        held = b""
        with pytest.raises(DataTooLarge, match=f"larger than {limit:,} bytes"):
            async for piece in unpack(pieces(pack(data), size), encoding, limit):
                held += piece
        assert held == data[:limit]


async def test_a_bomb_is_left_at_its_limit() -> None:
    """100 MB in 100 kB: no more of it is unpacked than may be read, and no more of it is taken."""
    bomb = gzip.compress(bytes(100_000_000), 1)
    taken = 0

    async def count_bytes(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        nonlocal taken
        async for part in parts:
            taken += len(part)
            yield part

    tracemalloc.start()
    try:
        with pytest.raises(DataTooLarge):
            await read_body(count_bytes(pieces(bomb, 16_384)), "gzip", 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4_000_000
    assert taken == 16_384


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip,deflate", "nonsense" * 100])
async def test_an_encoding_that_was_not_requested_is_refused(encoding: str) -> None:
    """Packed twice it would be a million times larger."""
    with pytest.raises(BodyUnreadable, match="only gzip, deflate can be read"):
        await read_body(pieces(gzip.compress(gzip.compress(b"x")), 10), encoding, 1_000)


async def test_what_is_not_packed_as_it_says_is_an_error() -> None:
    """In its beginning, and in its middle."""
    for data in (b"no gzip at all", gzip.compress(b"x" * 100)[:10] + b"\xff" * 30):
        with pytest.raises(BodyUnreadable, match="can't be unpacked"):
            await read_body(pieces(data, 5), "gzip", 1_000)


async def test_what_follows_a_packed_body_is_not_kept() -> None:
    """It is not even taken."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        yield gzip.compress(b"page")
        while taken < 100:
            taken += 1
            yield b"x" * 1_000

    assert await read_body(endless(), "gzip", 1_000) == b"page"
    assert taken == 0
