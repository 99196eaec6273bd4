"""Changes of what agents share: archives, passages, folders, files, tools, identities, providers, MCP servers,
variables, keys."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure import NewPassage
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.incoming.principals import LOCAL
from perdure.core.passages import PassageFilter
from perdure.domain.archives.units import Selection
from perdure.domain.tools.units import NewTool
from perdure.features.access.service import Access
from perdure.features.mcp.units import McpChanges
from perdure.library.agents.identities import IdentityFields
from perdure.library.parts.checks import Page
from perdure.library.parts.providers import ProviderFields
from tests.at_once.room import Change, Room, case

Changes = AsyncIterator[tuple[Change, Change]]
ALL = Page(1_000, ascending=True)


def source(name: str, says: str = "yes") -> str:
    """The source of a tool."""
    return f"def {name}(a: str) -> str:\n    '''Say it.\n\n    Args:\n        a: what\n    '''\n    return '{says}'\n"


@case("ArchiveById.update", "ArchiveById.edit")
async def archive_fields(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    yield (
        lambda one: one.archive_of(made.id).edit({"name": "b"}),
        lambda one: one.archive_of(made.id).edit({"description": "d"}),
    )
    now = await room.first.archives.get(made.id)
    assert (now.name, now.info.description) == ("b", "d")


@case("Archives.open")
async def archive_of_one_name(room: Room) -> Changes:
    name = room.name("archive")
    yield (lambda one: one.archives.open(name)), (lambda one: one.archives.open(name))
    assert len(await room.first.archives.page(ALL, name=name)) == 1
    assert room.results[0].id == room.results[1].id


@case("Archives.create", "Archives.add")
async def archives_of_one_name(room: Room) -> Changes:
    name = room.name("archive")
    yield ((lambda one: one.archives.add({"name": name})), (lambda one: one.archives.add({"name": name})))
    assert len({made.info.number for made in room.results}) == 2


@case("AgentArchives.attach", "ArchiveById.attach_to", "AgentArchives.detach", "ArchiveById.detach_from")
async def archives_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    first, second, third = [await room.first.archives.add({"name": "a"}) for _ in range(3)]
    await room.first.agent_of(agent.id).archives.attach(third.id)

    async def change(one: object) -> None:
        await room.second.agent_of(agent.id).archives.attach(second.id)
        await room.second.agent_of(agent.id).archives.detach(third.id)

    yield (lambda one: one.agent_of(agent.id).archives.attach(first.id)), change
    found = await room.first.agent_of(agent.id).archives.list()
    assert {one.id for one in found} == {first.id, second.id}


@case("Archives.delete", "ArchiveById.delete")
async def archive_and_a_passage(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    new = [NewPassage(text="late")]
    yield (lambda one: one.archive_of(made.id).delete()), (lambda one: one.archive_of(made.id).insert_many(new))
    assert room.results[0] is None or room.both


@case("Passages.update_passage")
async def passage_fields(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    (passage,) = await room.first.archive_of(made.id).insert_many([NewPassage(text="one", tags=["x"])])
    yield (
        lambda one: one.passages_of(made.id).update_passage(passage.id, text="two"),
        lambda one: one.passages_of(made.id).update_passage(passage.id, metadata={"k": 1}),
    )
    now = await room.first.archive_of(made.id).passage(passage.id)
    assert (now.text, now.metadata) == ("two", {"k": 1})


@case("Passages.update_passage")
async def passage_tags(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    (passage,) = await room.first.archive_of(made.id).insert_many([NewPassage(text="one", tags=["x"])])
    yield (
        lambda one: one.passages_of(made.id).update_passage(passage.id, tags=["y"]),
        lambda one: one.passages_of(made.id).update_passage(passage.id, tags=["z"]),
    )
    now = await room.first.archive_of(made.id).passage(passage.id)
    assert list(await room.first.archive_of(made.id).tags()) == list(now.tags)
    await room.first.passages_of(made.id).update_passage(passage.id, tags=["x", "y", "z"])


@case("Passages.delete_passage", "Archival.delete_passage", "Archival.delete_passages")
async def passage_deleted_twice(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).archive_passage(NewPassage(text="one", tags=["x"]))
    yield (
        lambda one: one.passages_of(made.archive_id).delete_passage(made.id),
        lambda one: one.agent_of(agent.id).delete_passages([made.id]),
    )
    assert (await room.first.archives.get(made.archive_id)).info.passage_count == 0
    await room.first.archive_of(made.archive_id).delete()


@case("ArchiveById.delete_where", "ArchiveById.delete_selection", "ArchiveById.delete_named")
async def passages_deleted_twice(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    await room.first.archive_of(made.id).put_named(["a"], NewPassage(text="one", tags=["x"]))
    yield (
        lambda one: one.archive_of(made.id).delete_selection(Selection(where=PassageFilter(tags=("x",)))),
        lambda one: one.archive_of(made.id).delete_named(["a"]),
    )
    assert (await room.first.archives.get(made.id)).info.passage_count == 0


@case("ArchiveById.put_named")
async def passage_of_one_name(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    yield (
        lambda one: one.archive_of(made.id).put_named(["n"], NewPassage(text="one")),
        lambda one: one.archive_of(made.id).put_named(["n"], NewPassage(text="two")),
    )
    assert room.both
    assert len(await room.first.archive_of(made.id).list_passages(ALL)) == 1


@case("ArchiveById.change_named")
async def passage_of_one_name_changed_twice(room: Room) -> Changes:
    archive = room.first.archive_of((await room.first.archives.add({"name": "a"})).id)
    await archive.put_named(["n"], NewPassage(text="one"))
    yield (
        lambda one: one.archive_of(archive.id).change_named(["n"], lambda now: {"tags": (*now.tags, "x")}),
        lambda one: one.archive_of(archive.id).change_named(["n"], lambda now: {"tags": (*now.tags, "y")}),
    )
    assert room.both
    (passage,) = await archive.list_passages(ALL)
    assert {*passage.tags} == {"x", "y"}


@case("ArchiveById.insert", "ArchiveById.insert_many")
async def passages_of_an_archive(room: Room) -> Changes:
    made = await room.first.archives.add({"name": "a"})
    new = [NewPassage(text="one", tags=["x"]), NewPassage(text="two", tags=["x"])]
    yield (
        (lambda one: one.archive_of(made.id).insert_many(new)),
        (lambda one: one.archive_of(made.id).insert_many(new)),
    )
    assert [one.seq for one in await room.first.archive_of(made.id).list_passages(ALL)] == [0, 1, 2, 3]


@case("Archival.archive", "Archival.archive_passage", "Archival.add_passage", "Archival.insert_passage")
async def first_passages_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        lambda one: one.agent_of(agent.id).archive_passage(NewPassage(text="one")),
        lambda one: one.agent_of(agent.id).add_passage(NewPassage(text="two")),
    )
    (archive,) = await room.first.agent_of(agent.id).archives.list()
    assert archive.info.passage_count == 2


@case(
    "Archives.restore_passage",
    "Passages.restore_passage",
    "Passages.shelve_passage",
    "Archival.edit_passage",
    "Archival.update_passage",
    "Archival.tag_passages",
)
async def passage_corrections(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).archive_passage(NewPassage(text="one"))

    async def correct(one: object) -> None:
        await room.second.agent_of(agent.id).update_passage(made.id, metadata={"k": 1})
        await room.second.agent_of(agent.id).shelve_passage(made.id)
        await room.second.archives.restore_passage(made.id)
        await room.second.agent_of(agent.id).tag_passages([made.id], "t")

    yield (lambda one: one.agent_of(agent.id).edit_passage(made.id, {"text": "two"})), correct
    now = await room.first.archive_of(made.archive_id).passage(made.id)
    assert (now.text, now.metadata, list(now.tags)) == ("two", {"k": 1}, ["t"])


@case("Folders.create", "Folders.add")
async def folders_of_one_name(room: Room) -> Changes:
    name = room.name("folder")
    yield ((lambda one: one.folders.add({"name": name})), (lambda one: one.folders.add({"name": name})))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("FolderById.update")
async def folder_fields(room: Room) -> Changes:
    made = await room.first.folders.add({"name": room.name("folder")})
    yield (
        lambda one: one.folders.by_id(made.id).update(description="d"),
        lambda one: one.folders.by_id(made.id).update(instructions="i"),
    )
    now = await room.first.folders.get(made.id)
    assert (now.info.description, now.info.instructions) == ("d", "i")


@case("FolderById.update")
async def folders_renamed_to_one_name(room: Room) -> Changes:
    first, second = [await room.first.folders.add({"name": room.name("folder")}) for _ in range(2)]
    name = room.name("folder")
    yield (
        lambda one: one.folders.by_id(first.id).update(name=name),
        lambda one: one.folders.by_id(second.id).update(name=name),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AgentFiles.attach", "AgentFiles.detach")
async def folders_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    first, second = [await room.first.folders.add({"name": room.name("folder")}) for _ in range(2)]
    await room.first.agent_of(agent.id).files.attach(second.id)
    yield (
        (lambda one: one.agent_of(agent.id).files.attach(first.id)),
        (lambda one: one.agent_of(agent.id).files.detach(second.id)),
    )
    assert [one.id for one in await room.first.agent_of(agent.id).files.folders()] == [first.id]


@case("Folders.delete", "FolderById.delete")
async def folder_deleted_twice(room: Room) -> Changes:
    made = await room.first.folders.add({"name": room.name("folder")})
    await room.first.folders.by_id(made.id).upload(b"x", name="x.txt")
    yield (lambda one: one.folders.by_id(made.id).delete()), (lambda one: one.folders.by_id(made.id).delete())
    assert not await room.first.folders.page(ALL, name=made.name)


@case("Files.upload")
async def files_of_one_name(room: Room) -> Changes:
    made = await room.first.folders.add({"name": room.name("folder")})
    yield (
        lambda one: one.folders.by_id(made.id).upload(b"x", name="x.txt", if_exists="skip"),
        lambda one: one.folders.by_id(made.id).upload(b"y", name="x.txt", if_exists="skip"),
    )
    assert room.both
    assert room.results[0].id == room.results[1].id
    assert (await room.first.folders.get(made.id)).info.file_count == 1


@case("Files.upload")
async def files_of_one_name_that_replace(room: Room) -> Changes:
    made = await room.first.folders.add({"name": room.name("folder")})
    yield (
        lambda one: one.folders.by_id(made.id).upload(b"x", name="x.txt"),
        lambda one: one.folders.by_id(made.id).upload(b"y", name="x.txt"),
    )
    assert (
        (await room.first.folders.get(made.id)).info.file_count
        == len(await room.first.folders.by_id(made.id).list_files(ALL))
        == 1
    )


@case("Files.delete_file")
async def file_deleted_twice(room: Room) -> Changes:
    made = await room.first.folders.add({"name": room.name("folder")})
    await room.first.folders.by_id(made.id).upload(b"x", name="x.txt")
    yield (
        (lambda one: one.folders.by_id(made.id).delete_file("x.txt")),
        (lambda one: one.folders.by_id(made.id).delete_file("x.txt")),
    )
    assert (await room.first.folders.get(made.id)).info.file_count == 0
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("AgentFiles.open", "AgentFiles.close", "AgentFiles.close_all")
async def files_that_an_agent_opens(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.folders.add({"name": room.name("folder")})
    for name in ("a.txt", "b.txt"):
        await room.first.folders.by_id(made.id).upload(f"text of {name}".encode(), name=name)
    await room.first.folders.by_id(made.id).wait()
    await room.first.agent_of(agent.id).files.attach(made.id, open_files=False)
    await room.first.agent_of(agent.id).files.open("b.txt")
    yield (
        (lambda one: one.agent_of(agent.id).files.open("a.txt")),
        (lambda one: one.agent_of(agent.id).files.close("b.txt")),
    )
    found = await room.first.agent_of(agent.id).files.list(is_open=True, limit=9)
    assert [one.file.name for one in found] == ["a.txt"]
    await room.at_once(
        lambda one: one.agent_of(agent.id).files.close_all(), lambda one: one.agent_of(agent.id).files.open("b.txt")
    )


@case("Tools.update", "Tools.edit")
async def tool_fields(room: Room) -> Changes:
    made = (await room.first.tools.add(NewTool(source=source(room.name("t").replace("-", "_"))))).tool
    yield (
        lambda one: one.tools.edit(made.id, {"tags": ["t"]}),
        lambda one: one.tools.edit(made.id, {"metadata": {"k": 1}}),
    )
    now = (await room.first.tools.state(made.id)).tool
    assert (list(now.tags), now.metadata) == (["t"], {"k": 1})


@case("Tools.update", "Tools.edit")
async def tools_renamed_to_one_name(room: Room) -> Changes:
    first, second = [
        (await room.first.tools.add(NewTool(source=source(room.name("t").replace("-", "_"))))).tool for _ in range(2)
    ]
    name = room.name("t").replace("-", "_")
    yield (
        lambda one: one.tools.edit(first.id, {"source": source(name)}),
        lambda one: one.tools.edit(second.id, {"source": source(name)}),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("Tools.create", "Tools.add")
async def tools_of_one_name(room: Room) -> Changes:
    name = room.name("t").replace("-", "_")
    yield (
        lambda one: one.tools.add(NewTool(source=source(name))),
        lambda one: one.tools.add(NewTool(source=source(name))),
    )
    assert room.both
    assert room.results[0].tool.id == room.results[1].tool.id


@case("Tools.upsert", "Tools.put")
async def tools_upserted(room: Room) -> Changes:
    name = room.name("t").replace("-", "_")
    yield (
        lambda one: one.tools.put(NewTool(source=source(name, "one"))),
        lambda one: one.tools.put(NewTool(source=source(name, "two"))),
    )
    assert room.both
    assert room.results[0].tool.id == room.results[1].tool.id


@case("Tools.delete", "AgentTools.attach", "AgentTools.detach")
async def tool_deleted_and_attached(room: Room) -> Changes:
    agent = await room.agent()
    first, second = [room.name("t").replace("-", "_") for _ in range(2)]
    for name in (first, second):
        await room.first.tools.add(NewTool(source=source(name)))
    await room.first.agent_of(agent.id).tools.attach(first)
    before = (await agent.state()).agent.settings_revision
    yield (
        (lambda one: one.agent_of(agent.id).tools.attach(second)),
        (lambda one: one.agent_of(agent.id).tools.detach(first)),
    )
    assert (await agent.state()).agent.settings_revision == before + 2
    await room.at_once(lambda one: one.tools.delete(second), lambda one: one.tools.delete(second))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("Tools.load")
async def functions_loaded(room: Room) -> Changes:
    def spoken_of(a: str) -> str:
        """Say it.

        Args:
            a: what
        """
        return a

    yield (lambda one: one.tools.load([spoken_of])), (lambda one: one.tools.load([spoken_of]))
    assert room.both


@case("AllIdentities.update", "AllIdentities.put_properties")
async def identity_fields(room: Room) -> Changes:
    made = await room.first.identities.create(IdentityFields(identifier_key=room.name("key"), name="a"))
    of = made.identity.id
    yield (
        lambda one: one.identities.put_properties(of, [{"key": "k", "value": "1", "type": "string"}]),
        lambda one: one.identities.update(of, IdentityFields(name="b")),
    )
    now = (await room.first.identities.get(of)).identity
    assert (now.name, [one["key"] for one in now.properties]) == ("b", ["k"])


@case("AllIdentities.upsert")
async def identities_of_one_key(room: Room) -> Changes:
    fields = IdentityFields(identifier_key=room.name("key"), name="a")
    yield (lambda one: one.identities.upsert(fields)), (lambda one: one.identities.upsert(fields))
    assert room.both
    assert room.results[0].identity.id == room.results[1].identity.id


@case("AllIdentities.create")
async def identities_created(room: Room) -> Changes:
    fields = IdentityFields(identifier_key=room.name("key"), name="a")
    yield (lambda one: one.identities.create(fields)), (lambda one: one.identities.create(fields))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AllIdentities.update")
async def identities_to_one_key(room: Room) -> Changes:
    made = [await room.first.identities.create(IdentityFields(identifier_key=room.name("key"))) for _ in range(2)]
    fields = IdentityFields(identifier_key=room.name("key"))
    yield (
        lambda one: one.identities.update(made[0].identity.id, fields),
        lambda one: one.identities.update(made[1].identity.id, fields),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AllIdentities.attach", "AllIdentities.detach", "AllIdentities.delete")
async def identities_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    made = [
        (await room.first.identities.create(IdentityFields(identifier_key=room.name("key")))).identity for _ in range(2)
    ]
    await room.first.identities.attach(agent.id, made[1].id)
    yield (
        lambda one: one.identities.attach(agent.id, made[0].id),
        lambda one: one.identities.detach(agent.id, made[1].id),
    )
    assert (await room.first.identities.get(made[0].id)).agent_ids == [agent.id]
    await room.at_once(lambda one: one.identities.delete(made[0].id), lambda one: one.identities.delete(made[0].id))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("AllIdentities.attach_block", "AllIdentities.detach_block")
async def identities_of_a_block(room: Room) -> Changes:
    block = await room.first.blocks.create("notes", "")
    made = [
        (await room.first.identities.create(IdentityFields(identifier_key=room.name("key")))).identity for _ in range(2)
    ]
    await room.first.identities.attach_block(block.id, made[1].id)
    yield (
        lambda one: one.identities.attach_block(block.id, made[0].id),
        lambda one: one.identities.detach_block(block.id, made[1].id),
    )
    assert [(await room.first.identities.get(one.id)).block_ids for one in made] == [[block.id], []]


def provider(room: Room) -> ProviderFields:
    return ProviderFields(
        name=room.name("provider"), provider_type="openai", base_url="http://127.0.0.1:1/v1", api_key="a key"
    )


@case("AllProviders.create")
async def providers_of_one_name(room: Room) -> Changes:
    fields = provider(room)
    yield (
        lambda one: one.providers.create(fields, private=True),
        lambda one: one.providers.create(fields, private=True),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AllProviders.update", "AllProviders.delete")
async def provider_fields(room: Room) -> Changes:
    made = await room.first.providers.create(provider(room), private=True)
    yield (
        lambda one: one.providers.update(made.id, ProviderFields(region="here"), private=True),
        lambda one: one.providers.update(made.id, ProviderFields(api_version="v2"), private=True),
    )
    now = await room.first.providers.get(made.id)
    assert (now.region, now.api_version) == ("here", "v2")
    await room.at_once(lambda one: one.providers.delete(made.id), lambda one: one.providers.delete(made.id))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("Mcp.add")
async def mcp_servers_of_one_name(room: Room) -> Changes:
    name = room.name("server")
    yield (
        lambda one: one.mcp.add(name, url="http://127.0.0.1:1/mcp", check=False, private=True),
        lambda one: one.mcp.add(name, url="http://127.0.0.1:1/mcp", check=False, private=True),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("Mcp.update", "Mcp.change", "Mcp.remove")
async def mcp_server_fields(room: Room) -> Changes:
    made = await room.first.mcp.add(room.name("server"), url="http://127.0.0.1:1/mcp", check=False, private=True)
    yield (
        lambda one: one.mcp.change(made.id, McpChanges(headers={"A": "1"})),
        lambda one: one.mcp.change(made.id, McpChanges(trusted=True)),
    )
    now = await room.first.mcp.server(made.id)
    assert (now.header_names, now.trusted) == (("A",), True)
    await room.at_once(lambda one: one.mcp.remove(made.id), lambda one: one.mcp.remove(made.id))


@case(
    "SandboxVariables.put",
    "SandboxVariables.update_variable",
    "SandboxVariables.add_variable",
    "SandboxVariables.delete_variable",
    "SandboxVariables.delete",
)
async def variables(room: Room) -> Changes:
    config = await room.first.sandbox.put({})
    made = await room.first.sandbox.add_variable(config.id, room.name("V").replace("-", "_"), "v", "d")
    yield (
        lambda one: one.sandbox.update_variable(made.id, "RENAMED", None, None),
        lambda one: one.sandbox.update_variable(made.id, None, None, "described"),
    )
    (now,) = [one for one in await room.first.sandbox.list_variables(config.id, ALL) if one.id == made.id]
    assert (now.name, now.description) == ("RENAMED", "described")
    await room.at_once(
        lambda one: one.sandbox.add_variable(config.id, "NEW", "v", None),
        lambda one: one.sandbox.add_variable(config.id, "NEW", "v", None),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]
    await room.at_once(
        lambda one: one.sandbox.delete_variable(made.id), lambda one: one.sandbox.delete_variable(made.id)
    )
    assert room.refused == 1
    await room.at_once(lambda one: one.sandbox.put({"timeout": 9}), lambda one: one.sandbox.delete(config.id))


@case("Secrets.set", "Secrets.delete")
async def secrets(room: Room) -> Changes:
    yield ((lambda one: one.secrets.set("ONE", "1")), (lambda one: one.secrets.set("TWO", "2")))
    assert {one.name for one in await room.first.secrets.list()} >= {"ONE", "TWO"}
    await room.at_once(lambda one: one.secrets.delete("ONE"), lambda one: one.secrets.delete("ONE"))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("Transfer.import_archives")
async def archives_imported(room: Room) -> Changes:
    made = await room.first.archives.add({"name": room.name("archive")})
    (passage,) = await room.first.archive_of(made.id).insert_many([NewPassage(text="one")])
    lines = ['{"type": "passage", "text": "more"}']
    yield (
        lambda one: one.transfer.import_archives(lines, into=made.id),
        lambda one: one.passages_of(made.id).update_passage(passage.id, tags=["t"]),
    )
    assert isinstance(room.results[0], InvalidInput) or room.both


def reach(room: Room, one: object) -> Access:
    app = one.app  # type: ignore[attr-defined]
    return Access(app.store, app.ports.clock, app.ports.ids, LOCAL)


@case("access.create_user", "access.delete_user")
async def users_of_one_name(room: Room) -> Changes:
    name = room.name("user")
    yield (lambda one: reach(room, one).create_user(name)), (lambda one: reach(room, one).create_user(name))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]
    made = await reach(room, room.first).user(name)
    await room.at_once(
        lambda one: reach(room, one).delete_user(made.id), lambda one: reach(room, one).delete_user(made.id)
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("access.create_organisation", "access.delete_organisation")
async def organisations_of_one_name(room: Room) -> Changes:
    name = room.name("org")
    yield (
        lambda one: reach(room, one).create_organisation(name),
        lambda one: reach(room, one).create_organisation(name),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]
    made = await reach(room, room.first).organisation(name)
    await room.at_once(
        lambda one: reach(room, one).delete_organisation(made.id),
        lambda one: reach(room, one).delete_organisation(made.id),
    )


@case("access.create_key", "access.revoke_key", "access.delete_key")
async def keys(room: Room) -> Changes:
    name = room.name("key")
    yield (
        (lambda one: reach(room, one).create_key(name, "read-only")),
        (lambda one: reach(room, one).create_key(name, "read-only")),
    )
    made = next(one[0] for one in room.results if isinstance(one, tuple))
    await room.at_once(
        lambda one: reach(room, one).revoke_key(made.id), lambda one: reach(room, one).revoke_key(made.id)
    )
    await room.at_once(
        lambda one: reach(room, one).delete_key(made.id), lambda one: reach(room, one).delete_key(made.id)
    )
