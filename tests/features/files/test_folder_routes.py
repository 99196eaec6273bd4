"""Folders and files over HTTP, as the official client asks for them."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from letta_client import APIStatusError

from perdure.testing import calls, says
from tests.server.routed import Routed, new_agent, routed

TEXT = b"".join(b"line %d about walruses\n" % number for number in range(1, 31))


async def until_read(server: Routed, folder_id: str) -> dict[str, Any]:
    """The folder's files by name, once each has its text or never will."""
    for _ in range(600):
        files = [file async for file in await server.letta.folders.files.list(folder_id)]
        if all(file.processing_status in ("completed", "error") for file in files):
            return {str(file.file_name): file for file in files}
        await asyncio.sleep(0.02)
    raise AssertionError("they were never read")


async def test_a_folder_through_the_official_client() -> None:
    """Made, filled, read, attached, asked, and gone again."""
    script = (calls("grep_files", pattern="line 7 "), says("On line 7."))
    async with routed(*script) as server:
        letta = server.letta
        folder = await letta.folders.create(
            name="docs", description="d", instructions="i", metadata={"a": 1}, embedding="openai/x"
        )
        assert folder.id.startswith("source-")
        assert (await letta.folders.retrieve(folder.id)) == folder
        changed = await letta.folders.update(folder.id, description="other")
        assert (changed.description, changed.instructions, changed.metadata) == ("other", "i", {"a": 1})
        assert [one.id async for one in await letta.folders.list(name="docs")] == [folder.id]
        assert await server.get("/v1/folders/count") == 1

        sent = await letta.folders.files.upload(folder.id, file=("plan.md", io.BytesIO(TEXT), "text/markdown"))
        assert (sent.processing_status, sent.file_name, sent.file_size) == ("pending", "plan.md", len(TEXT))
        assert (sent.source_id, sent.file_type, sent.original_file_name) == (folder.id, "text/markdown", "plan.md")
        file = (await until_read(server, folder.id))["plan.md"]
        assert (file.processing_status, file.error_message, file.chunks_embedded) == (
            "completed",
            None,
            file.total_chunks,
        )
        assert (file.model_extra or {})["progress"] == 100
        assert file.total_chunks
        named = await letta.folders.files.upload(folder.id, file=("tmp1.md", b"x"), name="my plan.md")
        assert (named.file_name, named.original_file_name) == ("my plan.md", "my plan.md")
        await letta.folders.files.delete(named.id, folder_id=folder.id)
        whole = await letta.folders.files.retrieve(file.id, folder_id=folder.id, include_content=True)
        assert whole.content == TEXT.decode()
        assert (await letta.folders.files.retrieve(file.id, folder_id=folder.id)).content is None

        agent = await new_agent(server)
        await letta.agents.folders.attach(folder.id, agent_id=agent["id"])
        assert [one.id async for one in await letta.agents.folders.list(agent["id"])] == [folder.id]
        assert await letta.folders.agents.list(folder.id) == [agent["id"]]
        state = await server.get(f"/v1/agents/{agent['id']}")
        assert [one["id"] for one in state["sources"]] == [folder.id]
        assert {"open_files", "grep_files", "semantic_search_files"} <= {tool["name"] for tool in state["tools"]}

        (seen,) = [one async for one in await letta.agents.files.list(agent["id"])]
        assert (seen.file_name, seen.is_open, seen.start_line, seen.end_line) == ("docs/plan.md", True, 1, 30)
        assert (seen.visible_content or "").startswith("[Viewing file start (out of 30 lines)]\n1: line 1 about")
        memory = await server.get(f"/v1/agents/{agent['id']}/core-memory")
        (listed,) = [one async for one in await letta.agents.list(name=agent["name"])]
        shown = (listed, await letta.agents.retrieve(agent["id"]))
        for (block,) in (memory["file_blocks"], *[one.memory.file_blocks or [] for one in shown]):
            block = block if isinstance(block, dict) else block.model_dump()
            assert (block["label"], block["value"], block["file_id"], block["source_id"], block["is_open"]) == (
                *("docs/plan.md", seen.visible_content, file.id, folder.id, True),
            )
        assert await letta.agents.files.close_all(agent["id"]) == ["docs/plan.md"]
        (closed,) = (await server.get(f"/v1/agents/{agent['id']}/core-memory"))["file_blocks"]
        assert (closed["value"], closed["is_open"]) == ("", False)
        assert await letta.agents.files.open(file.id, agent_id=agent["id"]) == []
        await letta.agents.files.close(file.id, agent_id=agent["id"])
        assert [one async for one in await letta.agents.files.list(agent["id"], is_open=True)] == []

        reply = await letta.agents.messages.create(agent["id"], messages=[{"role": "user", "content": "Where is 7?"}])
        returned = [one for one in reply.messages if one.message_type == "tool_return_message"]
        assert "docs/plan.md:7" in str(returned[0].tool_return)

        await letta.agents.folders.detach(folder.id, agent_id=agent["id"])
        assert "grep_files" not in {tool["name"] for tool in (await server.get(f"/v1/agents/{agent['id']}"))["tools"]}
        await letta.folders.files.delete(file.id, folder_id=folder.id)
        assert await until_read(server, folder.id) == {}
        await letta.folders.delete(folder.id)
        assert [one async for one in await letta.folders.list()] == []


async def test_files_are_paged_with_every_cursor() -> None:
    """Of a folder and of an agent, in both directions, each once."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")
        for number in range(5):
            await server.letta.folders.files.upload(folder.id, file=(f"{number}.txt", b"x %d" % number))
        await until_read(server, folder.id)
        agent = await new_agent(server, folder_ids=[folder.id], max_files_open=2)
        assert agent["max_files_open"] == 2
        for order, names in (("asc", ["0", "1", "2", "3", "4"]), ("desc", ["4", "3", "2", "1", "0"])):
            pages: Any = server.letta.folders.files.list(folder.id, limit=2, order=order)  # type: ignore[arg-type]
            assert [file.file_name async for file in await pages] == [f"{name}.txt" for name in names]
            pages = server.letta.agents.files.list(agent["id"], limit=2, order=order)  # type: ignore[arg-type]
            assert [file.file_name async for file in await pages] == [f"docs/{name}.txt" for name in names]
        opened = [one.file_name async for one in await server.letta.agents.files.list(agent["id"], is_open=True)]
        assert sorted(opened) == ["docs/0.txt", "docs/1.txt"]
        changed = await server.patch(f"/v1/agents/{agent['id']}", {"folder_ids": []})
        assert changed["sources"] == []


async def test_duplicate_names() -> None:
    """As the client asks; without a word the new file gets a suffix."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")

        async def upload(data: bytes, **more: Any) -> Any:
            return await server.letta.folders.files.upload(folder.id, file=("a.txt", data), **more)

        first = await upload(b"one")
        assert (await upload(b"two")).file_name == "a_(1).txt"
        assert (await upload(b"two", duplicate_handling="skip")).id == first.id
        with pytest.raises(APIStatusError) as caught:
            await upload(b"two", duplicate_handling="error")
        assert caught.value.status_code == 409
        assert (await upload(b"three", duplicate_handling="replace")).id != first.id
        assert (await upload(b"four", name="b/c.txt")).file_name == "b/c.txt"
        assert set(await until_read(server, folder.id)) == {"a.txt", "a_(1).txt", "b/c.txt"}


async def test_the_encoding_of_an_upload() -> None:
    """Guessed, which a warning says; or as the client says; one that there is not is refused with examples."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")
        files = {"file": ("a.txt", "客户张伟的电话是".encode("gb18030"))}

        async def upload(encoding: str) -> Any:
            params = {"encoding": encoding, "duplicate_handling": "replace"}
            return await server.http.post(f"/v1/folders/{folder.id}/upload", files=files, params=params)

        async def warnings() -> Any:
            await until_read(server, folder.id)
            return [file["warnings"] for file in await server.get(f"/v1/folders/{folder.id}/files")]

        await upload("")
        assert "gb18030, guessed" in (await warnings())[0][0]
        await upload("gb18030")
        assert await warnings() == [[]]
        answer = await upload("gb1830")
        assert (answer.status_code, "such as gb18030" in answer.text) == (422, True)


async def test_what_is_wrong_with_an_upload() -> None:
    """Told with what helps; nothing of it is kept."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")
        path = f"/v1/folders/{folder.id}/upload"
        limit = server.library.app.settings.file_limit_bytes

        async def refused(**request: Any) -> tuple[int, str]:
            answer = await server.http.post(request.pop("path", path), **request)
            return answer.status_code, str(answer.json()["detail"])

        assert (await refused(files={"file": ("../a.txt", b"x")}))[0] == 422
        assert (await refused(files={"file": ("a.zip", b"PK\x03\x04")}))[0] == 415
        assert (await refused(files={"other": ("a.txt", b"x")}))[0] == 422
        assert (await refused(json={"file": "x"}))[0] == 422
        assert (await refused(content=b"torn", headers={"content-type": "multipart/form-data; boundary=x"}))[0] == 400
        assert (await refused(files={"file": ("a.txt", b"x")}, params={"duplicate_handling": "maybe"}))[0] == 422
        status, why = await refused(files={"file": ("a.txt", io.BytesIO(b"x" * (limit + 1)))})
        assert (status, f"{limit:,}" in why) == (413, True)
        form = {"content-type": "multipart/form-data; boundary=x"}
        status, why = await refused(content=b"x", headers=form | {"content-length": str(limit * 3)})
        assert (status, f"{limit:,}" in why) == (413, True)
        none = "source-123e4567-e89b-42d3-a456-426614174000"
        for missing in (none, "source-1"):
            code = (await refused(path=f"/v1/folders/{missing}/upload", files={"file": ("a.txt", b"x")}))[0]
            assert code == (404 if missing == none else 422)
        assert await server.get(f"/v1/folders/{folder.id}/files") == []
        assert (await server.refused("POST", "/v1/folders/", {"name": "docs"}))[0] == 409
        assert (await server.refused("POST", "/v1/folders/", {"name": "a/b"}))[0] == 422
        assert (await server.refused("GET", f"/v1/folders/{none}"))[0] == 404


async def test_a_folders_archive_is_changed_by_its_files_only() -> None:
    """Each request to change it is refused, and nothing of it goes."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")
        await server.letta.folders.files.upload(folder.id, file=("plan.md", io.BytesIO(TEXT), "text/markdown"))
        await until_read(server, folder.id)
        archive = (await server.library.folders.get("docs")).info.archive_id
        path, agent = f"/v1/archives/{archive}", await new_agent(server)
        before = await server.get(f"{path}/passages")
        one = f"{path}/passages/{before[0]['id']}"
        for method, url, body in [
            ("DELETE", path, None),
            ("POST", f"{path}/passages", {"text": "more"}),
            ("POST", f"{path}/passages/batch", {"passages": [{"text": "more"}]}),
            ("POST", f"{path}/passages/delete", {"text": "walrus"}),
            ("PATCH", one, {"text": "other"}),
            ("DELETE", one, None),
            ("PATCH", path, {"name": "mine"}),
            ("PATCH", f"/v1/agents/{agent['id']}/archives/attach/{archive}", None),
            ("PATCH", f"/v1/agents/{agent['id']}/archives/detach/{archive}", None),
        ]:
            answer = await server.http.request(method, url, json=body)
            assert (answer.status_code, "holds what a folder's files say" in answer.text) == (422, True)
        assert await server.get(f"{path}/passages") == before


async def test_what_files_say_has_pages_and_is_found() -> None:
    """A folder's passages by cursors in both orders; those of an agent's folders with file and lines."""
    async with routed() as server:
        folder = await server.letta.folders.create(name="docs")
        for number in range(5):
            said = b"# Plan\n\nwalrus %d\n" % number
            await server.letta.folders.files.upload(folder.id, file=(f"{number}.md", io.BytesIO(said), "text/markdown"))
        await until_read(server, folder.id)
        path = f"/v1/folders/{folder.id}/passages"
        every = [one["id"] for one in await server.get(path)]
        assert len(every) == 5
        assert [one["id"] for one in await server.get(path, limit=2, after=every[1])] == every[2:4]
        assert [one["id"] for one in await server.get(path, limit=2, before=every[3])] == every[1:3]
        assert [one["id"] for one in await server.get(path, limit=2, order="desc", after=every[4])] == every[3:1:-1]

        agent = await new_agent(server)
        asked = {"agent_id": agent["id"], "query": "walrus", "limit": 3}
        assert await server.post("/v1/passages/search", asked) == []
        await server.letta.agents.folders.attach(folder.id, agent_id=agent["id"])
        found = await server.post("/v1/passages/search", asked)
        assert len(found) == 3
        for hit in found:
            assert (hit["passage"]["source_id"], hit["metadata"]) == (folder.id, {"first_line": 1, "last_line": 3})
            assert hit["passage"]["file_name"] == f"{hit['passage']['text'].split()[-1]}.md"


async def test_sources_are_folders_under_their_older_name() -> None:
    """Every operation that older clients have, over the same folders and files."""
    async with routed() as server:
        source = await server.post("/v1/sources/", {"name": "docs", "embedding": "openai/x"})
        path = f"/v1/sources/{source['id']}"
        file = {"file": ("plan.md", TEXT, "text/markdown")}
        sent = (await server.http.post(f"{path}/upload", files=file, params={"duplicate_handling": "skip"})).json()
        await until_read(server, source["id"])
        agent = await new_agent(server)
        attached = await server.patch(f"/v1/agents/{agent['id']}/sources/attach/{source['id']}")
        empty = await server.post("/v1/sources/", {"name": "empty"})

        listed_ids = [one["id"] for one in await server.get("/v1/sources/")]
        assert listed_ids == [source["id"], empty["id"]]
        assert await server.get("/v1/sources/") == await server.get("/v1/folders/")
        assert await server.get("/v1/sources/count") == 2
        assert await server.get("/v1/sources/name/docs") == source["id"]
        assert (await server.refused("GET", "/v1/sources/name/doc"))[0] == 404
        changed = await server.patch(path, {"description": "d"})
        assert await server.get(path) == changed != source
        assert await server.get(f"{path}/agents") == [agent["id"]]
        assert [one["id"] for one in attached["sources"]] == [source["id"]]
        assert [one["id"] for one in await server.get(f"/v1/agents/{agent['id']}/sources")] == [source["id"]]
        assert [one["id"] for one in await server.get(f"{path}/files")] == [sent["id"]]
        found = await server.get(f"{path}/files/{sent['id']}", include_content=True)
        assert found["content"] == TEXT.decode()
        assert "walruses" in (await server.get(f"{path}/passages"))[0]["text"]
        listed = {"file_id": sent["id"], "file_name": "plan.md", "file_size": len(TEXT)}
        counts = {"total_sources": 2, "total_files": 1, "total_size": len(TEXT)}
        assert await server.get("/v1/sources/metadata") == {**counts, "sources": []}
        sizes = await server.get("/v1/sources/metadata", include_detailed_per_source_metadata=True)
        docs = {"source_id": source["id"], "source_name": "docs", "file_count": 1, "total_size": len(TEXT)}
        none = {"source_id": empty["id"], "source_name": "empty", "file_count": 0, "total_size": 0, "files": []}
        assert sizes == {**counts, "sources": [{**docs, "files": [listed]}, none]}
        detached = await server.patch(f"/v1/agents/{agent['id']}/sources/detach/{source['id']}")
        assert detached["sources"] == []
        assert (await server.http.delete(f"{path}/{sent['id']}")).status_code == 204
        assert await server.get(f"{path}/files") == []
        assert await server.delete(path) is None
        assert (await server.refused("GET", path))[0] == 404
