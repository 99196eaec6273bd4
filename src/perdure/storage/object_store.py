"""The bytes of files in an object store with the S3 API, such as Amazon S3, MinIO, Ceph or Garage.

Errors name the bucket and what helps, never what the service answered: that may hold parts of a signature.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import BinaryIO

from perdure.core.errors import ExtraMissing, InvalidInput, StoreDamaged, StoreError, StoreUnavailable

CHUNK_BYTES = 5_242_880  # the least that S3 takes as a part, but for the last
TRIES = 3
PATIENCE = timedelta(seconds=30)
KEYS_AT_ONCE = 1_000


class ObjectStore:
    """`FileContents` over the S3 API. Make it with `open_object_store`."""

    def __init__(self, address: str) -> None:
        """`address`: s3://bucket/prefix. Plain HTTP is allowed only if the AWS variables name such an endpoint."""
        from obstore.store import S3Store

        self.place = address
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        self._store = S3Store.from_url(
            address,
            client_options={"allow_http": endpoint.startswith("http://")},
            retry_config={"max_retries": TRIES, "retry_timeout": PATIENCE},
        )

    async def put(self, key: str, source: BinaryIO) -> None:
        """Store all bytes that `source` holds under a key, in place of what it had. Raises: StoreError."""
        import obstore

        try:
            await obstore.put_async(self._store, key, source, chunk_size=CHUNK_BYTES)
        except Exception as error:
            raise self._error(error, key) from None

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """Yield the bytes under a key, in parts. Raises: StoreError; StoreDamaged: there are none."""
        import obstore

        try:
            found = await obstore.get_async(self._store, key)
            async for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)
        except Exception as error:
            raise self._error(error, key) from None

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete what these keys have; a key without anything is no error. Raises: StoreError."""
        import obstore

        try:
            for begin in range(0, len(keys), KEYS_AT_ONCE):
                await obstore.delete_async(self._store, list(keys[begin : begin + KEYS_AT_ONCE]))
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._error(error, keys[0]) from None

    async def list(self, folder: str, *, before: datetime) -> AsyncIterator[Sequence[str]]:
        """Yield, page by page, the keys in a folder that were last written before a time. Raises: StoreError."""
        import obstore

        try:
            async for page in obstore.list(self._store, folder, chunk_size=KEYS_AT_ONCE):
                yield [one["path"] for one in page if one["last_modified"] < before]
        except Exception as error:
            raise self._error(error, folder) from None

    def _error(self, error: Exception, key: str) -> StoreError:
        """The error to raise for one of obstore's, about this key or folder."""
        import obstore.exceptions

        match error:
            case StoreError():
                return error
            case FileNotFoundError():
                return StoreDamaged(f"{key} is not in {self.place}: put it back from a copy of the bucket")
            case obstore.exceptions.PermissionDeniedError() | obstore.exceptions.UnauthenticatedError():
                return StoreUnavailable(
                    f"{self.place} refuses this process: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they"
                    " may do there: list the bucket, and put, get and delete objects"
                )
            case _:
                return StoreUnavailable(
                    f"{self.place} can't be reached: check PERDURE_FILES, AWS_ENDPOINT_URL and AWS_REGION"
                    f" ({type(error).__name__})"
                )


def open_object_store(address: str) -> ObjectStore | None:
    """The object store at `s3://bucket/prefix`, of which nothing is asked yet; None for an empty address. Raises:
    InvalidInput: another address; ExtraMissing: without the `s3` extra."""
    if not address:
        return None
    if not address.startswith("s3://") or not address.removeprefix("s3://").partition("/")[0]:
        raise InvalidInput(f"PERDURE_FILES is {address!r}: give s3://bucket/prefix, or nothing")
    try:
        return ObjectStore(address)
    except ImportError:
        raise ExtraMissing("PERDURE_FILES", extra="s3") from None
    except Exception as error:
        raise InvalidInput(
            f"PERDURE_FILES is {address!r}, and the AWS variables don't make a store of it ({type(error).__name__})"
        ) from None
