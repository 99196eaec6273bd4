"""The bytes of files in an object store: put at the upload, checked when read, removed with the file."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import InvalidInput, NotFound, StoreDamaged, StoreUnavailable
from perdure.core.incoming.principals import LOCAL
from perdure.features.access.organisations import OpenOrganisations
from perdure.features.access.service import LAST_WRITES_S, Access
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_service import AsyncFolder
from perdure.features.files.worker import drop_orphans
from perdure.settings import Settings
from perdure.storage.object_store import ObjectStore, open_object_store
from perdure.testing import FakeClock
from tests.support.s3_server import KEY_ID, S3, SECRET, s3_server

FILES = "s3://bucket/perdure"
FOLDER = "bucket/perdure/"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    monkeypatch.delenv("SSL_CERT_DIR")  # the client wants certificates, also for an address without TLS
    with s3_server() as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double


@pytest.fixture
async def perdure(s3: S3, tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with await AsyncPerdure.open(tmp_path / "perdure.db", settings=Settings(files=FILES)) as opened:
        yield opened


@pytest.fixture
async def folder(perdure: AsyncPerdure) -> AsyncFolder:
    return await perdure.folders.create("docs")


async def test_bytes_are_kept_in_the_object_store(s3: S3, perdure: AsyncPerdure, folder: AsyncFolder) -> None:
    """The text is made of the object, and the bytes stay there for as long as the file."""
    text = b"Ada wrote notes.\n" + b" " * 6_000_000  # several parts
    file = await folder.upload(text, name="notes.txt")
    await folder.wait()

    assert list(s3.objects) == [f"{FOLDER}{file.org_id}/{file.id}"]
    assert (await folder.text("notes.txt", last_line=1)) == "Ada wrote notes."
    assert await folder.original("notes.txt") == text
    assert await perdure.app.store.read(lambda tx: tx.of(Files).get_bytes(file.id, 0)) is None


async def test_the_object_goes_with_its_file(s3: S3, folder: AsyncFolder) -> None:
    await folder.upload(b"one", name="one.txt")
    await folder.upload(b"two", name="two.txt")
    await folder.wait()

    await folder.delete_file("one.txt")
    async with asyncio.timeout(20):
        while len(s3.objects) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    assert list(s3.objects.values()) == [b"two"]


@pytest.mark.uses("origins")
async def test_an_erased_text_leaves_the_object_store(s3: S3, perdure: AsyncPerdure, folder: AsyncFolder) -> None:
    """The uploaded bytes in which it stands are removed; those of other files stay."""
    await folder.upload("Ada's code: Sesam öffne dich".encode(), name="secret.txt")
    await folder.upload(b"two", name="two.txt")
    await folder.wait()
    agent = await perdure.create_agent("x")
    await agent.files.attach("docs")

    await agent.forget("SESAM ÖFFNE dich", erase=True)

    assert list(s3.objects.values()) == [b"two"]
    assert "Sesam" not in await folder.text("secret.txt")
    with pytest.raises(InvalidInput, match="not kept"):
        await folder.original("secret.txt")


async def test_a_file_that_is_not_added_leaves_no_object(
    s3: S3, perdure: AsyncPerdure, folder: AsyncFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is deleted while the bytes are on their way."""
    contents = perdure.app.ports.contents
    assert isinstance(contents, ObjectStore)
    put = ObjectStore.put

    async def put_slowly(store: ObjectStore, key: str, source: BinaryIO) -> None:
        await put(store, key, source)
        await perdure.folders.delete(folder.id)

    monkeypatch.setattr(ObjectStore, "put", put_slowly)
    with pytest.raises(NotFound):
        await folder.upload(b"one", name="one.txt")

    assert s3.objects == {}
    assert sum(request.startswith("PUT") for request in s3.requests) == 1


async def test_damaged_bytes_are_found(s3: S3, folder: AsyncFolder) -> None:
    file = await folder.upload(b"as it was", name="a.txt")
    await folder.wait()
    (path,) = s3.objects

    s3.objects[path] = b"as it is!"
    with pytest.raises(StoreDamaged, match=str(file.id)):
        await folder.original("a.txt")
    del s3.objects[path]
    with pytest.raises(StoreDamaged, match="put it back"):
        await folder.original("a.txt")


async def test_a_silent_object_store_is_a_typed_error_without_keys(
    s3: S3, folder: AsyncFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is stored, and what is said holds no key; then the upload works again."""
    caplog.set_level(logging.DEBUG)
    for status, told in ((403, "AWS_ACCESS_KEY_ID"), (400, "AWS_ENDPOINT_URL")):
        s3.status = status
        with pytest.raises(StoreUnavailable, match=told) as caught:
            await folder.upload(b"one", name="one.txt")
        assert SECRET not in str(caught.value) + caplog.text
        assert KEY_ID not in str(caught.value) + caplog.text
    assert list(await folder.files()) == []

    s3.status = 0
    await folder.upload(b"one", name="one.txt")
    assert [file.status for file in await folder.wait()] == ["completed"]


async def test_only_old_objects_without_a_row_are_swept(s3: S3, perdure: AsyncPerdure, folder: AsyncFolder) -> None:
    """An upload that a crash cut off leaves an object; others, those of rows and of other organisations stay."""
    contents = perdure.app.ports.contents
    assert contents is not None
    files = [await folder.upload(str(number).encode(), name=f"{number}.txt") for number in range(4)]
    org = files[0].org_id
    await contents.put(f"{org}/file-old", io.BytesIO(b"old"))
    await contents.put("other-org/file-old", io.BytesIO(b"of others"))
    s3.make_older(timedelta(days=2))
    await contents.put(f"{org}/file-new", io.BytesIO(b"an upload that is going on"))

    count = await drop_orphans(perdure.app.ports, before=datetime.now(UTC) - timedelta(days=1))

    assert count == 1
    kept = {f"{FOLDER}{org}/{one}" for one in (*(file.id for file in files), "file-new")}
    assert set(s3.objects) == {*kept, f"{FOLDER}other-org/file-old"}


async def test_the_objects_go_with_their_organisation(s3: S3, perdure: AsyncPerdure, folder: AsyncFolder) -> None:
    """And if the object store does not answer, they go later."""
    await folder.upload(b"of the default organisation", name="a.txt")
    app = perdure.app
    clock = FakeClock(datetime.now(UTC) - timedelta(seconds=LAST_WRITES_S))
    access = Access(app.shared.store, clock, app.ports.ids, LOCAL)
    acme, other = [await access.create_organisation(name) for name in ("Acme", "Other")]
    organisations = OpenOrganisations(perdure)
    async with organisations.use(acme.id) as library:
        docs = await library.folders.create("docs")
        await docs.upload(b"a secret", name="a.txt")
        await docs.wait()
    for one in (acme, other):
        await access.delete_organisation(one.id)

    s3.status = 403
    await organisations.look()
    assert len(s3.objects) == 2
    s3.status = 0
    await organisations.look()

    assert list(s3.objects.values()) == [b"of the default organisation"]
    assert [one.name for one in await access.organisations()] == ["default"]
    await organisations.close()


async def test_without_the_setting_the_rest_still_works(s3: S3, tmp_path: Path) -> None:
    """A file from before the setting is read from the store; one with an object is said to need it."""
    async with await AsyncPerdure.open(tmp_path / "perdure.db", settings=Settings(files=FILES)) as perdure:
        folder = await perdure.folders.create("docs")
        await folder.upload(b"one", name="one.txt")
        await folder.wait()
    async with await AsyncPerdure.open(tmp_path / "perdure.db", settings=Settings()) as perdure:
        folder = await perdure.folders.get("docs")
        await folder.upload(b"two", name="two.txt")
        await folder.wait()

        assert await folder.text("one.txt") == "one"
        assert await folder.text("two.txt") == "two"
        with pytest.raises(StoreUnavailable, match="PERDURE_FILES"):
            await folder.original("one.txt")
        with pytest.raises(InvalidInput, match="not kept"):
            await folder.original("two.txt")


@pytest.mark.parametrize("address", ["/tmp/files", "s3://", "gs://bucket"])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="s3://bucket/prefix"):
        open_object_store(address)
