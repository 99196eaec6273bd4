"""Folders, their files, and what agents have open of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perdure.core.errors import AlreadyExists, InvalidInput, LeaseLost, NotFound
from perdure.core.ids import FileId, FolderId, OrgId
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.values import File, FilePart, file_tag
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, UNTIL, Contract, raises

OTHER = OrgId("org-other")


class FolderContract(Contract):
    async def test_files_and_their_bytes_are_counted(self) -> None:
        """In all folders or in one; a file that is being deleted does not count."""
        async with self.open_store() as store:
            first, second = await store.write(self.add_folder, "a"), await store.write(self.add_folder, "b")
            for folder, name, size in ((first, "x", 3), (first, "y", 4), (second, "z", 10)):
                await store.write(self.add_file, folder.id, name, size_bytes=size)
            gone = await store.write(self.add_file, second.id, "gone", size_bytes=100)
            await store.write(lambda tx: tx.of(Files).delete(gone.id))

            assert await store.read(lambda tx: tx.of(Files).measure()) == (3, 17)
            assert await store.read(lambda tx: tx.of(Files).measure(first.id)) == (2, 7)
            assert await store.read(lambda tx: tx.of(Files).measure(FolderId("source-none"))) == (0, 0)

    async def test_folders_come_back_as_they_were_put(self) -> None:
        """Numbered in order of creation, found by id, name and page; changed fields are kept, counts are the store's
        own."""
        async with self.open_store() as store:
            added = [
                await store.write(
                    self.add_folder, f"folder {text}", description=text, instructions=text, metadata={"is": text}
                )
                for text in AWKWARD
            ]
            numbers = [folder.number for folder in added]
            assert numbers == sorted(set(numbers))

            def look(tx: Tx) -> list[Any]:
                return [
                    [tx.of(Folders).get(folder.id) for folder in added],
                    tx.of(Folders).list(),
                    tx.of(Folders).list(above=numbers[0], limit=2),
                    tx.of(Folders).list(below=numbers[3], newest_first=True, limit=2),
                    tx.of(Folders).list(name=added[1].name),
                    tx.of(Folders).find(added[2].name),
                    tx.of(Folders).find("none"),
                    tx.of(Folders).count(),
                ]

            named = [added[1]]
            pages = [added[1:3], added[2:0:-1], named, added[2], None, len(added)]
            assert await store.read(look) == [added, added, *pages]

            changed = replace(added[0], name="other", description=None, metadata={}, updated_at=LATER)
            await store.write(lambda tx: tx.of(Folders).put(changed))
            after = await store.read(lambda tx: tx.of(Folders).get(changed.id))
            assert after == replace(changed, version=1)

    async def test_an_archive_of_a_folder_belongs_to_it(self) -> None:
        """It is in no list, and only the folder's deletion deletes it; for another organisation it is not there."""
        async with self.open_store() as store, self.open_store(org_id=OTHER) as other:
            folder = await store.write(self.add_folder, "one")
            own = await store.write(self.add_archive)
            owner = await store.read(lambda tx: tx.archives.find_owner(folder.archive_id))
            assert owner is not None and (owner.use.table, owner.id, owner.name) == ("folders", folder.id, "one")
            assert await store.read(lambda tx: tx.archives.find_owner(own.id)) is None
            assert await other.read(lambda tx: tx.archives.find_owner(folder.archive_id)) is None
            assert await store.read(lambda tx: tx.archives.list()) == [own]
            with raises(InvalidInput):
                await store.write(lambda tx: tx.archives.delete(folder.archive_id))

    async def test_a_name_is_one_folders_own(self) -> None:
        """Neither a new folder nor a renamed one can have another's name; another organisation can."""
        async with self.open_store() as store, self.open_store(org_id=OTHER) as other:
            one, two = await store.write(self.add_folder, "one"), await store.write(self.add_folder, "two")
            with raises(AlreadyExists):
                await store.write(self.add_folder, "one")
            with raises(AlreadyExists):
                await store.write(lambda tx: tx.of(Folders).put(replace(two, name="one")))
            await other.write(self.add_folder, "one")
            for unit in (
                lambda tx: tx.of(Folders).get(one.id),
                lambda tx: tx.of(Folders).put(one),
                lambda tx: tx.of(Folders).delete(one.id),
                lambda tx: tx.of(Folders).list_agents(one.id),
                lambda tx: self.add_file(tx, one.id),
            ):
                with raises(NotFound):
                    await other.write(unit)
            assert len(await other.read(lambda tx: tx.of(Folders).list())) == 1

    async def test_no_list_of_archives_shows_a_folders_own(self) -> None:
        """It is the folder's alone: not listed, not deleted but with the folder."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            notes = await store.write(self.add_archive)
            assert await store.read(lambda tx: tx.archives.list()) == [notes]
            assert await store.read(lambda tx: tx.of(Folders).find_by_archive(folder.archive_id)) == folder
            assert await store.read(lambda tx: tx.of(Folders).find_by_archive(notes.id)) is None
            with raises(InvalidInput):
                await store.write(lambda tx: tx.archives.delete(folder.archive_id))
            await store.write(lambda tx: tx.of(Folders).delete(folder.id))
            with raises(NotFound):
                await store.read(lambda tx: tx.archives.get(folder.archive_id))

    async def test_files_come_back_as_they_were_put(self) -> None:
        """Numbered within their folder; a name is one file's own there."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            added = [
                await store.write(
                    self.add_file,
                    folder.id,
                    f"{text}.md",
                    original_name=text,
                    media_type="text/markdown",
                    size_bytes=2**40,
                    digest=f"digest {number}",
                )
                for number, text in enumerate(AWKWARD)
            ]
            assert [file.number for file in added] == list(range(len(AWKWARD)))

            def look(tx: Tx) -> list[Any]:
                return [
                    [tx.of(Files).get(file.id) for file in added],
                    tx.of(Files).list(folder.id, above=0, limit=2),
                    tx.of(Files).list(folder.id, below=3, newest_first=True, limit=2),
                    tx.of(Files).find(folder.id, added[1].name),
                    tx.of(Files).find(folder.id, "none"),
                    tx.of(Folders).get(folder.id).file_count,
                ]

            pages = [added[1:3], added[2:0:-1], added[1], None, len(added)]
            assert await store.read(look) == [added, *pages]
            with raises(AlreadyExists):
                await store.write(self.add_file, folder.id, added[0].name)
            with raises(InvalidInput):
                await store.write(lambda tx: tx.of(Folders).delete(folder.id))

    async def test_a_deleted_file_is_gone_at_once(self) -> None:
        """Its name is free; a worker who has it has lost it, and one is told to remove what is left."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            file = await store.write(self.add_file, folder.id)
            working = await store.write(lambda tx: tx.of(Files).claim(owner="me", at=AT, until=UNTIL))
            await store.write(
                lambda tx: tx.of(Files).put_parts(file.id, [FilePart(seq=0, first_line=1, text="x")], page_starts=(1,))
            )
            await store.write(lambda tx: tx.of(Files).delete(file.id))
            assert working is not None
            with raises(LeaseLost):
                await store.write(lambda tx: tx.of(Files).renew(working, until=UNTIL))
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Files).get(file.id))

            def look(tx: Tx) -> list[Any]:
                count = tx.of(Folders).get(folder.id).file_count
                return [tx.of(Files).list(folder.id), tx.of(Files).find(folder.id, file.name), count]

            assert await store.read(look) == [[], None, 0]
            other = await store.write(self.add_file, folder.id, file.name)
            left = await store.write(lambda tx: tx.of(Files).claim(owner="me", at=AT, until=UNTIL))
            assert left is not None and (left.id, left.status) == (file.id, "deleted")
            await store.write(lambda tx: tx.of(Files).release_all("me"))
            again = await store.write(lambda tx: tx.of(Files).claim(owner="me", at=AT, until=UNTIL))
            assert again == left
            await store.write(lambda tx: tx.of(Files).purge(left))
            with raises(LeaseLost):
                await store.write(lambda tx: tx.of(Files).purge(left))
            assert await store.read(lambda tx: tx.of(Files).parts(file.id)) == []
            await store.write(lambda tx: tx.of(Files).delete(other.id))
            with raises(InvalidInput):  # a worker needs the folder to remove the file
                await store.write(lambda tx: tx.of(Folders).delete(folder.id))
            last = await store.write(lambda tx: tx.of(Files).claim(owner="me", at=AT, until=UNTIL))
            assert last is not None and last.id == other.id
            await store.write(lambda tx: tx.of(Files).purge(last))
            await store.write(lambda tx: tx.of(Folders).delete(folder.id))

    async def test_bytes_are_kept_until_they_are_dropped(self) -> None:
        """In parts, also before their file is added; those of files that never are go when they are old."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            data = [bytes(range(256)), b"", b"\x00\xff"]

            def put(tx: Tx) -> File:
                file = self.add_file(tx, folder.id)
                for seq, part in enumerate(data):
                    tx.of(Files).put_bytes(file.id, seq, part, at=AT)
                    tx.of(Files).put_bytes(FileId("file-never"), seq, part, at=AT)
                return file

            file = await store.write(put)
            read = await store.read(lambda tx: [tx.of(Files).get_bytes(file.id, seq) for seq in range(4)])
            assert read == [*data, None]
            assert await store.write(lambda tx: tx.of(Files).drop_abandoned(before=AT, limit=9)) == 0
            assert await store.write(lambda tx: tx.of(Files).drop_abandoned(before=LATER, limit=2)) == 2
            assert await store.read(lambda tx: tx.of(Files).has_abandoned(before=LATER))
            assert await store.write(lambda tx: tx.of(Files).drop_abandoned(before=LATER, limit=2)) == 1
            assert not await store.read(lambda tx: tx.of(Files).has_abandoned(before=LATER))
            assert await store.read(lambda tx: tx.of(Files).get_bytes(file.id, 0)) == data[0]
            await store.write(lambda tx: tx.of(Files).drop_bytes(file.id))
            assert await store.read(lambda tx: tx.of(Files).get_bytes(file.id, 0)) is None

    async def test_one_works_on_a_file(self) -> None:
        """The oldest first, each claimed once; again when the lease has run out or its holder is known as gone, and
        then the one before can write nothing."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            first, second = [await store.write(self.add_file, folder.id, name) for name in ("a", "b")]

            def claim(owner: str, at: Any = AT, dead: tuple[str, ...] = ()) -> Callable[[Tx], File | None]:
                return lambda tx: tx.of(Files).claim(owner=owner, at=at, until=UNTIL, dead_owners=dead)

            assert await store.read(lambda tx: tx.of(Files).has_work())
            mine = await store.write(claim("me"))
            assert mine == replace(first, status="parsing", tries=1, lease_owner="me", lease_until=UNTIL)
            theirs = await store.write(claim("they"))
            assert theirs is not None and theirs.id == second.id
            assert await store.write(claim("late")) is None
            assert sorted(await store.read(lambda tx: tx.of(Files).list_owners())) == ["me", "they"]

            taken = await store.write(claim("late", dead=("gone", "they")))
            assert taken is not None and (taken.id, taken.tries) == (second.id, 2)
            for unit in (lambda tx: tx.of(Files).renew(theirs, until=UNTIL), lambda tx: tx.of(Files).end(theirs)):
                with raises(LeaseLost):
                    await store.write(unit)
            again = await store.write(claim("late", at=LATER))
            assert again is not None and again.id == first.id

            await store.write(lambda tx: tx.of(Files).renew(taken, until=LATER, done=3, total=7))
            held = await store.read(lambda tx: tx.of(Files).get(second.id))
            assert (held.done, held.total, held.lease_until) == (3, 7, LATER)
            await store.write(lambda tx: tx.of(Files).release_all("late"))
            free = await store.read(lambda tx: tx.of(Files).get(second.id))
            assert (free.status, free.lease_owner, free.tries) == ("pending", None, 1)

            mine = await store.write(claim("me"))
            assert mine is not None
            await store.write(lambda tx: tx.of(Files).release_claim(replace(mine, lease_owner="they")))
            assert await store.read(lambda tx: tx.of(Files).get(mine.id)) == mine
            await store.write(lambda tx: tx.of(Files).release_claim(mine))
            free = await store.read(lambda tx: tx.of(Files).get(mine.id))
            assert (free.status, free.lease_owner, free.tries) == ("pending", None, mine.tries - 1)

    async def test_an_object_is_named_until_its_file_is_purged(self) -> None:
        """Also by a deleted file: its object must not go before its row."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            file = await store.write(self.add_file, folder.id, "a.md", object_key="o/a")
            await store.write(self.add_file, folder.id, "b.md")

            async def named() -> set[str]:
                return await store.read(lambda tx: tx.of(Files).named_keys(["o/a", "o/b", ""]))

            assert await named() == {"o/a", ""}
            await store.write(lambda tx: tx.of(Files).delete(file.id))
            assert "o/a" in await named()
            claimed = await store.write(lambda tx: tx.of(Files).claim(owner="me", at=AT, until=UNTIL))
            assert claimed is not None and claimed.object_key == "o/a"
            await store.write(lambda tx: tx.of(Files).purge(claimed))
            assert await named() == {""}

    async def test_an_object_that_was_removed_is_named_no_more(self) -> None:
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            file = await store.write(self.add_file, folder.id, "a.md", object_key="o/a")
            await store.write(lambda tx: tx.of(Files).forget_object(file.id))

            assert await store.read(lambda tx: tx.of(Files).get(file.id)) == replace(file, object_key="")

    async def test_what_became_of_a_file_is_kept(self) -> None:
        """All that is known of its text; its folder has another version when it can be read, and it is found by its
        bytes."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            await store.write(self.add_file, folder.id, "good.md", digest="d")
            await store.write(self.add_file, folder.id, "bad.md", digest="d")

            async def end(**fields: Any) -> File:
                def unit(tx: Tx) -> File:
                    file = tx.of(Files).claim(owner="me", at=AT, until=UNTIL)
                    assert file is not None
                    tx.of(Files).end(replace(file, updated_at=LATER, **fields))
                    return replace(file, lease_owner=None, lease_until=None, updated_at=LATER, **fields)

                file = await store.write(unit)
                assert await store.read(lambda tx: tx.of(Files).get(file.id)) == file
                return file

            good = await end(
                status="completed",
                kind="markdown",
                title=AWKWARD[0],
                warnings=(AWKWARD[1],),
                done=4,
                total=4,
                page_count=2,
                line_count=3,
                char_count=2**40,
                chunk_count=1,
            )
            version = (await store.read(lambda tx: tx.of(Folders).get(folder.id))).version
            await end(status="error", problem=AWKWARD[1])
            assert version == (await store.read(lambda tx: tx.of(Folders).get(folder.id))).version == 1
            assert not await store.read(lambda tx: tx.of(Files).has_work())
            assert await store.read(lambda tx: tx.of(Files).find_by_digest("d", suffix=".md")) == good
            assert await store.read(lambda tx: tx.of(Files).find_by_digest("d", suffix=".txt")) is None
            assert await store.read(lambda tx: tx.of(Files).find_by_digest("e", suffix=".md")) is None

    async def test_what_waits_for_vectors_is_counted_by_file(self) -> None:
        """Only passages that still wait, and only of the folder that is asked for."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            one, two = (
                await store.write(self.add_file, folder.id, "1"),
                await store.write(self.add_file, folder.id, "2"),
            )

            def fill(tx: Tx) -> int:
                archive = tx.archives.get(folder.archive_id)
                tx.vectors.open(archive.number, "archive", archive.id, "test/m")
                for file in (one, two, two):
                    self.add_passage(tx, archive.id, "text", "own", file_tag(file.id))
                self.add_passage(tx, archive.id, "of no file")
                return archive.number

            number = await store.write(fill)
            assert await store.read(lambda tx: tx.of(Files).count_queued_passages(folder.id)) == {one.id: 1, two.id: 2}
            rows = [(0, b"\x00\x3c"), (2, b"\x00\x3c")]
            await store.write(lambda tx: tx.vectors.put(number, rows, model="test/m", dimensions=1))
            assert await store.read(lambda tx: tx.of(Files).count_queued_passages(folder.id)) == {two.id: 1}
            assert await store.read(lambda tx: tx.of(Files).count_queued_passages(FolderId("source-none"))) == {}

    async def test_text_is_read_from_any_line(self) -> None:
        """From the part that the line begins in, also when a line before it fills several."""
        async with self.open_store() as store:
            folder = await store.write(self.add_folder)
            parts = [
                FilePart(seq=0, first_line=1, text="1 \x00\n2\n"),
                FilePart(seq=1, first_line=3, text="3 long"),
                FilePart(seq=2, first_line=3, first_char=6, text=" and longer"),
                FilePart(seq=3, first_line=3, first_char=17, text=" end\n4\n"),
                FilePart(seq=4, first_line=5, text="5\n\ud800\n"),
            ]

            def put(tx: Tx) -> File:
                file = self.add_file(tx, folder.id)
                tx.of(Files).put_parts(file.id, parts[:2], (1, 3))
                tx.of(Files).put_parts(file.id, parts[2:])
                return file

            file = await store.write(put)

            def first(tx: Tx) -> list[int]:
                return [tx.of(Files).parts(file.id, from_line=line)[0].seq for line in (1, 2, 3, 4, 5, 99)]

            assert await store.read(first) == [0, 0, 1, 1, 4, 4]
            assert await store.read(lambda tx: tx.of(Files).parts(file.id, limit=99)) == parts
            assert await store.read(lambda tx: tx.of(Files).parts(file.id, after_seq=3, limit=99)) == parts[4:]
            assert await store.read(lambda tx: tx.of(Files).page_starts(file.id)) == [1, 3]
            await store.write(lambda tx: tx.of(Files).drop_parts(file.id))
            assert await store.read(lambda tx: [tx.of(Files).parts(file.id), tx.of(Files).page_starts(file.id)]) == [
                [],
                [],
            ]

    async def test_agents_have_the_files_of_their_folders(self) -> None:
        """Listed in order, found by path, name or the end of a name; gone with the folder."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            one, two = await store.write(self.add_folder, "one"), await store.write(self.add_folder, "two")
            names = [(one.id, "a/x.py"), (one.id, "x.py"), (two.id, "x.py"), (two.id, "%_.md")]
            files = [await store.write(self.add_file, folder_id, name) for folder_id, name in names]
            before = (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision

            assert await store.write(lambda tx: tx.of(Folders).attach(agent.id, two.id, opens=True))
            assert await store.write(lambda tx: tx.of(Folders).attach(agent.id, one.id, opens=True))
            assert not await store.write(lambda tx: tx.of(Folders).attach(agent.id, one.id, opens=False))
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == before + 2
            mine = await store.read(lambda tx: tx.of(Folders).list_by_agent(agent.id))
            assert [folder.id for folder in mine] == [two.id, one.id]
            assert await store.read(lambda tx: tx.of(Folders).list_agents(one.id)) == [agent.id]
            assert (await store.read(lambda tx: tx.conversations.get_state(agent.id, 0))).has
            assert await store.read(lambda tx: tx.of(Folders).list_agents(one.id, opening=True)) == []
            assert await store.read(lambda tx: tx.of(Folders).list_agents(two.id, opening=True)) == [agent.id]

            def ids(found: Any) -> list[FileId]:
                return [one.file.id for one in found]

            def look(tx: Tx) -> list[Any]:
                mine = tx.of(AgentFiles)
                return [
                    ids(mine.list(agent.id)),
                    ids(mine.list(agent.id, above=(one.number, 0), limit=2)),
                    ids(mine.list(agent.id, below=(two.number, 1), newest_first=True)),
                    ids(mine.find_by_path(agent.id, "x.py")),
                    ids(mine.find_by_path(agent.id, "one/x.py")),
                    ids(mine.find_by_path(agent.id, "a/x.py")),
                    ids(mine.find_by_path(agent.id, "%_.md")),
                    ids(mine.find_by_path(agent.id, ".md")),
                ]

            a, x, other_x, md = ids([type("F", (), {"file": file}) for file in files])
            found = await store.read(look)
            assert found[:3] == [[a, x, other_x, md], [x, other_x], [other_x, x, a]]
            assert found[3] == [x, other_x, a]
            assert found[4:] == [[x], [a], [md], []]
            first = await store.read(lambda tx: tx.of(AgentFiles).list_first([agent.id], limit=3))
            assert ids(first[agent.id]) == [a, x, other_x]
            assert (await store.read(lambda tx: tx.of(AgentFiles).get(agent.id, x))).path == "one/x.py"

            await store.write(lambda tx: tx.of(AgentFiles).open(agent.id, x, 1, 2, at=AT))
            assert await store.write(lambda tx: tx.of(Folders).detach(agent.id, one.id))
            assert not await store.write(lambda tx: tx.of(Folders).detach(agent.id, one.id))
            with raises(NotFound):
                await store.read(lambda tx: tx.of(AgentFiles).get(agent.id, x))
            await store.write(lambda tx: tx.of(Folders).attach(agent.id, one.id, opens=False))
            assert ids(await store.read(lambda tx: tx.of(AgentFiles).list_open(agent.id))) == []

    async def test_open_files_are_known_by_their_views(self) -> None:
        """The one used last first; every view has a version of its own, and is told with the folders'."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            folder = await store.write(self.add_folder)
            files = [await store.write(self.add_file, folder.id, name) for name in "abc"]
            await store.write(lambda tx: tx.of(Folders).attach(agent.id, folder.id, opens=True))
            assert await store.read(lambda tx: tx.of(AgentFiles).list_versions(agent.id)) == {folder.id: 0}

            seen: list[int] = []
            for file in (*files, files[0]):
                opened = await store.write(
                    lambda tx, file_id=file.id: tx.of(AgentFiles).open(agent.id, file_id, 2, 9, at=LATER)  # type: ignore[misc]
                )
                assert (opened.is_open, opened.first_line, opened.last_line, opened.used_at) == (True, 2, 9, LATER)
                seen.append(opened.version)
            assert len(set(seen)) == 4
            assert [one.file.name for one in await store.read(lambda tx: tx.of(AgentFiles).list_open(agent.id))] == [
                *"acb"
            ]

            assert await store.write(lambda tx: tx.of(AgentFiles).close(agent.id, files[1].id))
            assert not await store.write(lambda tx: tx.of(AgentFiles).close(agent.id, files[1].id))
            shown = await store.read(lambda tx: tx.of(AgentFiles).list_versions(agent.id))
            assert shown == {folder.id: 0, files[0].id: seen[3], files[2].id: seen[2]}
            is_open = await store.read(lambda tx: tx.of(AgentFiles).list(agent.id, is_open=True))
            assert [one.file.name for one in is_open] == ["a", "c"]
            closed = await store.read(lambda tx: tx.of(AgentFiles).list(agent.id, is_open=False))
            assert [one.file.name for one in closed] == ["b"]

            await store.write(lambda tx: tx.of(Files).delete(files[0].id))
            assert await store.read(lambda tx: tx.of(AgentFiles).list_versions(agent.id)) == {
                folder.id: 1,
                files[2].id: seen[2],
            }
            await store.write(lambda tx: tx.agents.delete(agent.id))
            assert await store.read(lambda tx: tx.of(Folders).list_agents(folder.id)) == []

    async def test_another_organisation_sees_no_files(self) -> None:
        """Neither the file, nor its bytes and text, nor what an agent has open; and it can attach nothing."""
        async with self.open_store() as store, self.open_store(org_id=OTHER) as other:
            agent = await store.write(self.add_agent)
            folder = await store.write(self.add_folder)

            def fill(tx: Tx) -> File:
                file = self.add_file(tx, folder.id, digest="d")
                tx.of(Files).put_bytes(file.id, 0, b"x", at=AT)
                tx.of(Files).put_parts(file.id, [FilePart(seq=0, first_line=1, text="x")], (1,))
                tx.of(Folders).attach(agent.id, folder.id, opens=True)
                tx.of(AgentFiles).open(agent.id, file.id, 1, 1, at=AT)
                return file

            file = await store.write(fill)
            stranger = await other.write(self.add_agent)
            theirs = await other.write(self.add_folder)

            def look(tx: Tx) -> list[Any]:
                return [
                    tx.of(Files).find(folder.id, file.name),
                    tx.of(Files).list(folder.id),
                    tx.of(Files).get_bytes(file.id, 0),
                    tx.of(Files).parts(file.id),
                    tx.of(Files).page_starts(file.id),
                    tx.of(Files).has_work(),
                    tx.of(Files).list_owners(),
                    tx.of(Folders).list_by_agent(agent.id),
                    tx.of(AgentFiles).list_versions(agent.id),
                    tx.of(AgentFiles).list_open(agent.id),
                    tx.of(AgentFiles).close(agent.id, file.id),
                    tx.of(Files).claim(owner="me", at=AT, until=UNTIL),
                ]

            assert not any(await other.write(look))
            for unit in (
                lambda tx: tx.of(Files).get(file.id),
                lambda tx: tx.of(Files).delete(file.id),
                lambda tx: tx.of(Files).put_parts(file.id, []),
                lambda tx: tx.of(Folders).attach(agent.id, theirs.id, opens=True),
                lambda tx: tx.of(Folders).attach(stranger.id, folder.id, opens=True),
                lambda tx: tx.of(Folders).detach(agent.id, folder.id),
                lambda tx: tx.of(AgentFiles).open(agent.id, file.id, 1, 1, at=AT),
            ):
                with raises(NotFound):
                    await other.write(unit)
            assert (await store.read(lambda tx: tx.of(AgentFiles).get(agent.id, file.id))).is_open

    async def test_files_are_found_by_what_they_are_called(self) -> None:
        """`folder/name`, a name, or the end of one behind a slash: the closest first, in the agent's folders only."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> tuple[File, File, File]:
                docs, more, strange = (self.add_folder(tx, name) for name in ("docs", "more", "strange"))
                for folder in (docs, more):
                    tx.of(Folders).attach(agent.id, folder.id, opens=False)
                self.add_file(tx, strange.id, "plan.md")
                made = (self.add_file(tx, docs.id, "a/plan.md"), self.add_file(tx, more.id, "plan.md"))
                return *made, self.add_file(tx, docs.id, "myplan.md")

            deep, plain, mine = await store.write(fill)

            def named(tx: Tx, name: str, limit: int = 20) -> list[str]:
                return [one.file.id for one in tx.of(AgentFiles).find_by_path(agent.id, name, limit=limit)]

            assert await store.read(named, "plan.md") == [plain.id, deep.id]
            assert await store.read(named, "plan.md", 1) == [plain.id]
            assert await store.read(named, "docs/a/plan.md") == [deep.id]
            assert await store.read(named, "myplan.md") == [mine.id]
            assert await store.read(named, "lan.md") == []
