"""A model file is fetched once, whole and unchanged, however often the line breaks."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure import InvalidInput
from perdure.features.local.catalogue import LocalModel, catalogue
from perdure.features.local.download import SPARE_BYTES, DownloadFailed, download
from tests.support.model_files import FileServer, file_server, gguf

DATA = gguf(tail=300_000)
PATH = "/maker/model/resolve/main/small-q4.gguf"


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A server that has the file."""
    with file_server({PATH: DATA}) as server:
        yield server


def model_at(server: FileServer, **changes: object) -> LocalModel:
    """What a catalogue says of the file."""
    fields: dict[str, object] = {
        "name": "small",
        "address": f"{server.url}{PATH}",
        "size_bytes": len(DATA),
        "sha256": hashlib.sha256(DATA).hexdigest(),
    }
    return LocalModel(**(fields | changes))  # type: ignore[arg-type]


def names_in(folder: Path) -> list[str]:
    """The names of the files of a folder."""
    return [path.name for path in folder.iterdir()]


async def fetch(model: LocalModel, target: Path, *, mirror: str = "") -> list[tuple[int, int]]:
    """Fetch it; the progress that was told."""
    told: list[tuple[int, int]] = []
    part = target.with_name(f"{target.name}.part")
    await download(model, part, target, mirror=mirror, progress=lambda done, total: told.append((done, total)))
    return told


async def test_a_file_comes_whole_and_progress_is_told(server: FileServer, tmp_path: Path) -> None:
    """Until it is whole it has another name."""
    told = await fetch(model_at(server), tmp_path / "small.gguf")

    assert (tmp_path / "small.gguf").read_bytes() == DATA
    assert names_in(tmp_path) == ["small.gguf"]
    assert told[0] == (0, len(DATA))
    assert told[-1] == (len(DATA), len(DATA))


async def test_a_broken_transfer_goes_on_where_it_was(server: FileServer, tmp_path: Path) -> None:
    """By the same command, without another one; a server that fails for a moment is asked again."""
    server.cuts, server.statuses = [100_000, 50_000], [503]
    await fetch(model_at(server), tmp_path / "small.gguf")

    assert (tmp_path / "small.gguf").read_bytes() == DATA
    assert [wanted for _, wanted in server.asked] == [None, None, "bytes=100000-", "bytes=150000-"]


async def test_what_an_earlier_process_fetched_is_kept(server: FileServer, tmp_path: Path) -> None:
    """And counts in the checksum."""
    (tmp_path / "small.gguf.part").write_bytes(DATA[:200_000])
    told = await fetch(model_at(server), tmp_path / "small.gguf")

    assert server.asked == [(PATH, "bytes=200000-")]
    assert told[0] == (200_000, len(DATA))
    assert (tmp_path / "small.gguf").read_bytes() == DATA


async def test_a_server_without_ranges_gives_it_from_the_start(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "small.gguf.part").write_bytes(DATA[:200_000])
    await fetch(model_at(server), tmp_path / "small.gguf")

    assert (tmp_path / "small.gguf").read_bytes() == DATA


@pytest.mark.parametrize("damage", ["earlier", "there"])
async def test_another_file_is_refused_and_leaves_nothing(server: FileServer, tmp_path: Path, damage: str) -> None:
    """Of what has the right size too; the next try begins anew, and succeeds."""
    model, target = model_at(server), tmp_path / "small.gguf"
    if damage == "earlier":
        (tmp_path / "small.gguf.part").write_bytes(bytes(200_000))
    else:
        server.files[PATH] = DATA[:-1] + b"!"
    with pytest.raises(DownloadFailed, match=rf"has the SHA-256 [0-9a-f]{{64}}, and should have {model.sha256}"):
        await fetch(model, target)
    assert not target.exists()

    server.files[PATH] = DATA
    await fetch(model, target)
    assert target.read_bytes() == DATA


async def test_a_longer_file_is_not_fetched_to_its_end(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="gives more than the 300,"):
        await fetch(model_at(server, size_bytes=len(DATA) - 5), tmp_path / "small.gguf")


async def test_a_mirror_has_files_by_their_paths(tmp_path: Path) -> None:
    """The address of the catalogue is not asked."""
    with file_server({f"/mirror{PATH}": DATA}) as server:
        model = model_at(server, address=f"https://models.invalid{PATH}")
        await fetch(model, tmp_path / "small.gguf", mirror=f"{server.url}/mirror/")

    assert (tmp_path / "small.gguf").read_bytes() == DATA


async def test_a_file_that_is_being_fetched_is_not_fetched_twice(server: FileServer, tmp_path: Path) -> None:
    """Another process has it open."""
    with (tmp_path / "small.gguf.part").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InvalidInput, match="small is being fetched already"):
            await fetch(model_at(server), tmp_path / "small.gguf")

    assert server.asked == []


async def test_what_can_not_be_fetched_says_so(server: FileServer, tmp_path: Path) -> None:
    """A file that is not there, an address that is none, a disk that is too small."""
    with pytest.raises(DownloadFailed, match="answered 404: the file is not there for everybody"):
        await fetch(model_at(server, address=f"{server.url}/other.gguf"), tmp_path / "small.gguf")
    with pytest.raises(InvalidInput, match=r"'ftp://mirror\.example/maker/.*is not an address of a model file"):
        await fetch(model_at(server), tmp_path / "small.gguf", mirror="ftp://mirror.example")
    with pytest.raises(InvalidInput, match=r"GB free, and 1000000000\.0 GB are to come: make room"):
        await fetch(model_at(server, size_bytes=10**18), tmp_path / "small.gguf")


@pytest.mark.parametrize("lacks", [0, 1])
async def test_a_disk_needs_room_for_what_is_missing_and_for_the_store(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    """What an earlier process fetched takes its room already; without the last byte nothing is fetched."""
    part = tmp_path / "small.gguf.part"
    part.write_bytes(DATA[:200_000])
    free = len(DATA) - 200_000 + SPARE_BYTES - lacks
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))

    if lacks:
        with pytest.raises(InvalidInput, match="make room"):
            await fetch(model_at(server), tmp_path / "small.gguf")
        assert part.read_bytes() == DATA[:200_000]
    else:
        await fetch(model_at(server), tmp_path / "small.gguf")
        assert (tmp_path / "small.gguf").read_bytes() == DATA


def test_the_catalogue_names_what_a_person_has_to_know() -> None:
    """Three models, from small to large, each with an open licence and a checksum of a fixed revision."""
    models = list(catalogue().values())

    assert [model.name for model in models] == ["tiny", "small", "medium"]
    assert [model.size_bytes for model in models] == sorted(model.size_bytes for model in models)
    for model in models:
        assert model.address.startswith("https://") and "/resolve/main/" not in model.address
        assert len(model.sha256) == 64 and set(model.sha256) <= set("0123456789abcdef")
        assert model.licence in ("Apache-2.0", "MIT")
        assert model.about
