"""Pages show what the store holds, as HTML and as JSON, and their forms change it."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from benchmarks.dashboard import paths_of
from perdure import ModelReply, RunFailed, Text, Usage
from perdure.core.errors import ModelRequestRefused
from perdure.core.incoming.principals import LOCAL, Scope
from perdure.core.models import Calling
from perdure.core.text.reprs import plural
from perdure.features.access.service import Access
from perdure.server.config import ServerConfig
from perdure.testing import calls, says
from perdure.ui.pages.routes import page_modules
from tests.ui.browser import BASE, dashboard, tags_of, text_of, undo

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


async def test_an_empty_store_shows_the_first_steps() -> None:
    async with dashboard() as (client, _):
        page = await client.get("/")

    assert page.status_code == 200
    assert "Create an agent" in text_of(page.text)


async def test_a_form_creates_an_agent_and_opens_its_chat() -> None:
    async with dashboard() as (client, library):
        answer = await client.post("/agents", data={"name": "Ada", "human": "Likes tea."})
        agent = await library.agent("Ada")

        assert answer.headers["hx-redirect"] == f"/agents/{agent.id}"
        assert (await agent.blocks.get("human")).value == "Likes tea."


async def test_an_action_that_fails_shows_its_page_and_why() -> None:
    async with dashboard() as (client, _):
        answer = await client.post("/agents", data={"name": "?!"})

    assert answer.status_code == 422
    assert "?!" in text_of(answer.text) and "New agent" in text_of(answer.text)


async def test_the_model_of_a_chat_is_the_default_or_a_pinned_one() -> None:
    """The first choice names the default, and takes a pin away."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        path = f"/agents/{agent.id}"
        handle = agent.info.model
        following = (await client.get(path)).text
        await client.post(f"{path}/model", data={"model": "perdure/extractive"})
        pinned = (await client.get(path)).text
        freed = await client.post(f"{path}/model", data={"model": ""})

        assert f'<option value="" selected>default ({handle})</option>' in following
        assert f'<option value="">default ({handle})</option>' in pinned
        assert "<option selected>perdure/extractive</option>" in pinned
        assert "the default model" in text_of(freed.text)
        assert (await library.agent("Ada")).info.follows_default


async def test_the_chat_shows_that_another_model_answers() -> None:
    """Once, while the run is followed."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", model="perdure/extractive")
        handle = library.app.choice.handle
        await agent.edit({"follows_default": True})
        reply = await agent.send("hello")
        events = (await client.get(f"/events/runs/{reply.run_id}")).text

        assert events.count(f"{handle} answers from now on, no longer perdure/extractive") == 1


async def test_each_page_answers_on_an_empty_store() -> None:
    async with dashboard() as (client, library):
        none = [(await client.get(path)).status_code for path in paths_without_ids()]
        agent = await library.create_agent("Ada")
        paths = [
            f"/agents/{agent.id}{path}"
            for path in ("", "/context", "/memory", "/memory?block=human", "/facts", "/tools", "/files", "/settings")
        ]
        found = {path: (await client.get(path)).status_code for path in paths}

    assert set(none) == {200} and len(none) >= 7
    assert set(found.values()) == {200}, found


@pytest.mark.slow
@pytest.mark.uses("origins")
async def test_each_page_has_a_json_twin() -> None:
    """With a title, and what the page shows."""
    async with dashboard(calls("memory_insert", label="human", new_string="Likes tea.")) as (client, library):
        agent = await library.create_agent("Ada")
        run_id = (await agent.send("I like tea")).run_id
        (step,) = [step for step in await agent.steps() if step.index == 0]
        for path in await paths_of(agent):
            page = await client.get(path)
            twin = await client.get(f"{path}{'&' if '?' in path else '?'}format=json")

            assert page.headers["content-type"].startswith("text/html")
            assert f"<title>{twin.json()['title']}" in page.text, path
        why = (await client.get(f"/runs/{run_id}", params={"step": step.id, "format": "json"})).json()["step"]

    assert why["request"]["messages"][-1]["text"] == "I like tea"
    assert sum(part["tokens"] for part in why["explanation"]["parts"]) == why["explanation"]["input_tokens"]


def paths_without_ids() -> list[str]:
    """The pages that are about everything there is."""
    paths = [path for module in page_modules() for path in module.pages.paths]
    return [path for path in paths if "{" not in path and path != "/why"]


async def test_the_navigation_counts_the_calls_that_wait() -> None:
    """On every page, until they are decided."""

    def post(text: str) -> str:
        """Post a text.

        Args:
            text: the text.
        """
        return f"posted {text}"

    async with dashboard(calls("post", text="hello"), says("Well."), tools=[post]) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.require_approval("post")
        before = (await client.get("/")).text
        await agent.send("post it")
        pages = [(await client.get(path)).text for path in ("/", "/data", f"/agents/{agent.id}/memory")]
        await agent.deny()
        after = (await client.get("/")).text

    assert all("Approvals 1 waiting" in text_of(page) for page in pages)
    assert 'class="count" hidden>0' in before and 'class="count" hidden>0' in after


async def test_a_call_is_approved_on_the_page() -> None:
    def post(text: str) -> str:
        """Post a text.

        Args:
            text: the text.
        """
        return f"posted {text}"

    async with dashboard(calls("post", text="hello"), says("Done."), tools=[post]) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.require_approval("post")
        await agent.send("post it")
        (call,) = (await client.get("/approvals?format=json")).json()["pending"]
        form = {name: call[name] for name in ("agent_id", "conversation_id", "call_id", "tool", "arguments")}
        refused = await client.post("/approvals", data={**form, "arguments": "{", "choice": "always"})
        assert refused.status_code == 422
        assert (await client.get(f"/agents/{agent.id}/tools?format=json")).json()["rules"] != []
        page = await client.post("/approvals", data={**form, "original": call["arguments"], "choice": "always"})
        for _ in range(100):
            if [message.text for message in await agent.messages()][-1] == "Done.":
                break
            await asyncio.sleep(0.01)

        assert "Nothing is waiting for you" in text_of(page.text)
        assert "posted hello" in [message.text for message in await agent.messages()]
        assert (await client.get(f"/agents/{agent.id}/tools?format=json")).json()["rules"] == []
        await undo(client, page)
        assert (await client.get(f"/agents/{agent.id}/tools?format=json")).json()["rules"] != []


async def test_a_key_of_a_user_takes_no_approval_off_a_tool() -> None:
    """Nor does a form about a call that does not wait."""

    def post(text: str) -> str:
        """Post a text.

        Args:
            text: the text.
        """
        return f"posted {text}"

    config = ServerConfig(api_key="the key of the server, of some length")
    async with dashboard(calls("post", text="hello"), says("Done."), tools=[post], config=config) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.require_approval("post")
        await agent.send("post it")
        ports = library.app.ports
        access = Access(library.app.shared.store, ports.clock, ports.ids, LOCAL)
        tries: list[tuple[Scope, str | None, int]] = [("user", None, 403), ("builder", "call-unknown", 404)]
        for scope, call_id, status in tries:
            _, text = await access.create_key(scope, scope)
            client.headers["authorization"] = f"Bearer {text}"
            (call,) = (await client.get("/approvals?format=json")).json()["pending"]
            form = {name: call[name] for name in ("agent_id", "conversation_id", "call_id", "tool", "arguments")}
            form |= {"call_id": call_id} if call_id else {}
            answer = await client.post("/approvals", data={**form, "choice": "always"})
            assert answer.status_code == status, answer.text
            rules = (await client.get(f"/agents/{agent.id}/tools?format=json")).json()["rules"]
            assert [rule["type"] for rule in rules] == ["requires_approval"]


async def test_a_tool_is_tried_detached_and_attached_again() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/tools"
        tried = await client.post(
            f"{where}/memory_insert/try", data={"arguments": '{"label": "human", "new_string": "x"}'}
        )
        wrong = await client.post(f"{where}/memory_insert/try", data={"arguments": "[1"})
        await client.post(f"{where}/memory_insert/detach")
        without = (await client.get(f"{where}?format=json")).json()["tools"]
        await client.post(where, data={"tool": "memory_insert"})

        assert tried.status_code == 200 and wrong.status_code == 422
        assert (await agent.blocks.get("human")).value == "x"
        assert "memory_insert" not in [tool["name"] for tool in without]


async def test_a_file_is_uploaded_to_a_new_folder() -> None:
    async with dashboard() as (client, _):
        created = await client.post("/data/folders", data={"name": "notes"})
        folder_id = created.headers["hx-push-url"].partition("folder=")[2]
        await client.post(f"/data/folders/{folder_id}/files", files={"file": ("plan.md", b"# Plan")})
        twin = (await client.get("/data", params={"folder": folder_id, "format": "json"})).json()

    assert [file["name"] for file in twin["files"]] == ["plan.md"]


async def test_the_encoding_of_a_file_is_chosen_on_the_page() -> None:
    """A guess is shown beside the file; a name that there is not is refused with examples."""
    async with dashboard() as (client, library):
        folder = await library.folders.create("notes")
        where, files = f"/data/folders/{folder.id}/files", {"file": ("a.txt", "Zażółć gęślą jaźń".encode("cp1250"))}

        async def page() -> str:
            await folder.wait()
            return (await client.get("/data", params={"folder": folder.id})).text

        await client.post(where, files=files, data={"encoding": ""})
        guessed = await page()
        await client.post(where, files=files, data={"encoding": "cp1250"})
        chosen = await page()
        wrong = await client.post(where, files=files, data={"encoding": "cp125"})

    assert "read as cp1250, guessed" in guessed and "guessed from" not in chosen
    assert wrong.status_code == 422 and "such as gb18030" in wrong.text


async def test_an_archive_is_exported_checked_and_imported() -> None:
    """A check changes nothing; a second import skips what is there; a wrong line is named."""
    async with dashboard() as (client, library), dashboard() as (other, there):
        agent = await library.create_agent("Ada")
        await agent.archive("The garden has a pear tree.")
        (archive,) = (await client.get("/data?format=json")).json()["archives"]
        lines = (await client.get(f"/data/archives/{archive['id']}")).content
        file = {"file": ("ada.jsonl", lines)}
        check = await other.post("/data/archives", files=file, data={"choice": "check"})
        before = (await other.get("/data?format=json")).json()["archives"]
        imported = await other.post("/data/archives", files=file, data={"choice": "import"})
        again = await other.post("/data/archives", files=file, data={"choice": "import"})
        wrong = await other.post("/data/archives", files={"file": ("x", b"{\xff")}, data={"choice": "import"})
        after = [archive.name for archive in await there.archives.list()]

    assert "ada.jsonl holds 1 passage. Nothing has been imported yet." in text_of(check.text) and before == []
    assert "Imported 1 passage into" in text_of(imported.text) and "1 were there already" in text_of(again.text)
    assert after == [archive["name"]]
    assert wrong.status_code == 422 and "line 1" in text_of(wrong.text)


async def test_the_settings_say_what_the_sandbox_contains() -> None:
    async with dashboard() as (client, _):
        twin = (await client.get("/settings?format=json")).json()["sandbox"]
        page = text_of((await client.get("/settings")).text)

    assert twin["summary"].rstrip(".").lower() in page.lower()
    assert all(measure["meaning"] in page for measure in twin["measures"])


async def test_pages_run_no_text_of_others() -> None:
    """Every text is escaped, and the policy lets only this server's files run."""
    script = calls("memory_insert", label="human", new_str=HOSTILE, new_string=HOSTILE)
    async with dashboard(script, says(HOSTILE)) as (client, library):
        agent = await library.create_agent("Ada", description=HOSTILE, human=HOSTILE, tags=[HOSTILE])
        await agent.send(HOSTILE)
        await client.post(f"/agents/{agent.id}/memory/passages", data={"text": HOSTILE, "tags": "a<b"})
        pages = [await client.get(path) for path in ("/", f"/agents/{agent.id}", f"/agents/{agent.id}/memory")]

    for page in pages:
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert "alert(1)" in page.text
        for tag, values in tags_of(page.text):
            assert tag != "img" and not any(name.startswith("on") for name in values)
            assert tag != "script" or str(values.get("src", "")).startswith("/static/")


async def test_the_chat_follows_a_run() -> None:
    """A sent message starts a run in the background; its events end with the answer's HTML."""
    async with dashboard(says("Good morning.")) as (client, library):
        agent = await library.create_agent("Ada")
        page = await client.post(f"/agents/{agent.id}/messages", data={"text": "hello"})
        (run_id,) = re.findall(r'class="chat" data-run="(run-[^"]+)"', page.text)
        stream = await client.get(f"/events/runs/{run_id}")
        events = [
            (block.split("event: ")[1].split("\n")[0], json.loads(block.split("data: ")[1]))
            for block in stream.text.strip().split("\n\n")
            if not block.startswith(":")
        ]

    shown = [item["html"] for name, event in events if name == "message" for item in event["items"]]
    assert "hello" in shown[0] and "Good morning." in shown[-1]
    assert events[-1][0] == "closed"


async def test_the_chat_shows_a_failed_run_in_the_place_of_its_answer() -> None:
    """Also among older messages, when a later run has answered."""
    async with dashboard(ModelRequestRefused("the provider is down"), says("Good morning.")) as (client, library):
        agent = await library.create_agent("Ada")
        with pytest.raises(RunFailed) as failed:
            await agent.send("hello")
        await agent.send("hello again")
        items = (await client.get(f"/agents/{agent.id}?format=json")).json()["items"]
        page = (await client.get(f"/agents/{agent.id}")).text

    assert [item["kind"] for item in items] == ["user", "failure", "user", "assistant"]
    assert "the provider is down" in text_of(page) and "Try again" not in text_of(page)
    assert f'href="/runs/{failed.value.run_id}"' in page


async def test_an_edit_of_memory_stands_in_the_chat_as_a_difference() -> None:
    script = calls("memory_insert", label="human", new_string="Likes tea.")
    async with dashboard(script, says("Noted.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("I like tea")
        twin = (await client.get(f"/agents/{agent.id}", params={"format": "json"})).json()

    (edit,) = [item for item in twin["items"] if item["kind"] == "edit"]
    assert edit["name"] == "human" and "+Likes tea." in edit["text"]


async def test_a_block_is_edited_and_restored() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        where = f"/agents/{agent.id}/memory/blocks/human"
        page = await client.post(where, data={"value": "Likes coffee.", "version": "0"})
        late = await client.post(where, data={"value": "Likes milk.", "version": "0"})
        assert (await agent.blocks.get("human")).value == "Likes coffee."
        stale = await client.post(where, data={"earlier": "0", "version": "0"})
        shown = (await client.get(f"/agents/{agent.id}/memory?block=human")).text
        assert '{"earlier": "0", "version": "1"}' in shown
        back = await client.post(where, data={"earlier": "0", "version": "1"})

        assert "Undo" in text_of(page.text)
        assert late.status_code == stale.status_code == 409 and 'id="conflict"' in stale.text
        assert "as it was in version 0" in text_of(back.text)
        assert (await agent.blocks.get("human")).value == "Likes tea."


@pytest.mark.parametrize("number", ["²", "１２", "9" * 30, "-1"])
async def test_what_only_looks_like_a_number_is_no_error_of_the_server(number: str) -> None:
    """Python calls "²" a digit, and reads no number in it."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        chat = await client.get(f"/agents/{agent.id}", params={"before": number})
        form = {"value": "b", "version": number, "number": number, "limit": number, "label": "human"}
        answers = [
            await client.post(f"/agents/{agent.id}/{path}", data=form)
            for path in ("memory/blocks/human", "memory/undo", f"facts/rules/{number}/delete", "memory/blocks")
        ]
    assert [one.status_code for one in (chat, *answers) if one.status_code >= 500] == []


async def test_an_unknown_agent_is_a_page_that_says_so() -> None:
    async with dashboard() as (client, _):
        page = await client.get("/agents/agent-00000000-0000-4000-8000-000000000000")

    assert page.status_code == 404
    assert "Go to the home page" in text_of(page.text)


async def test_a_run_is_replayed_and_exported_on_its_page() -> None:
    """Old and new answers stand side by side; an unknown model is refused on the page."""
    async with dashboard(says("Old answer."), says("New answer.")) as (client, library):
        agent = await library.create_agent("Ada")
        run_id = (await agent.send("Hello")).run_id
        page = await client.post(f"/runs/{run_id}/replay", data={"model": "", "system": HOSTILE})
        refused = await client.post(f"/runs/{run_id}/replay", data={"model": "test/unknown"})
        export = await client.get(f"/runs/{run_id}/export")
        missing = await client.get("/runs/run-x/export")
        count = await agent.message_count()

    shown = text_of(page.text)
    assert shown.index("Old answer.") < shown.index("New answer.") and "The replay ended: it answered." in shown
    assert HOSTILE in shown and "<script>alert" not in page.text
    assert refused.status_code == 404 and "test/unknown" in text_of(refused.text)
    assert export.json()["id"] == run_id and "attachment" in export.headers["content-disposition"]
    assert (missing.status_code, count) == (404, 2)


async def test_a_message_is_edited_in_a_fork() -> None:
    """The form holds its text; the new conversation has what came before, and the changed text."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("one")
        await agent.send("two")
        asked = next(message for message in await agent.messages() if message.text == "two")
        form = await client.get(f"/agents/{agent.id}", params={"edit": asked.id})
        answer = await client.post(f"/agents/{agent.id}/fork", data={"message_id": asked.id, "text": "changed"})
        made = (await agent.conversations())[-1]
        texts = [message.text for message in await agent.messages(conversation=made.id)]
        old = [message.text for message in await agent.messages(conversation=(await agent.conversations())[0].id)]

    assert "Fork and send" in text_of(form.text) and ">two</textarea>" in form.text
    assert answer.headers["hx-redirect"] == f"/agents/{agent.id}?conversation={made.id}"
    assert texts[:3] == ["one", "OK.", "changed"] and old == ["one", "OK.", "two", "OK."]


async def test_numbers_and_nouns_agree() -> None:
    """One of a thing is no plural."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("Hello")
        await agent.blocks.append("human", "Likes tea.")
        await library.folders.create("notes")
        context = text_of((await client.get(f"/agents/{agent.id}/context")).text)
        data = text_of((await client.get("/data")).text)

    assert "1 memory edit will be sent with the next request." in context
    assert "0 files" in data and (plural(1, "file"), plural(1_200, "file")) == ("1 file", "1,200 files")


async def test_a_conversation_is_forked_at_the_end_of_a_run() -> None:
    """From the run's head; what was said later is not in the fork."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        run_id = (await agent.send("one")).run_id
        await agent.send("two")
        page = await client.get(f"/runs/{run_id}")
        answer = await client.post(f"/runs/{run_id}/fork")
        made = (await agent.conversations())[-1]
        texts = [message.text for message in await agent.messages(conversation=made.id)]

    assert f'hx-post="/runs/{run_id}/fork"' in page.text
    assert answer.headers["hx-redirect"] == f"/agents/{agent.id}?conversation={made.id}"
    assert texts == ["one", "OK."]


@pytest.mark.uses("origins")
async def test_memory_and_answers_link_to_their_origins() -> None:
    """From a block to its lines, the message behind one and the run; from an answer to what was in its request."""
    script = (calls("memory_insert", label="human", new_string="Likes tea."), says("Noted."))
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("Ada")
        run_id = (await agent.send("I like tea")).run_id
        block = await agent.blocks.get("human")
        memory = await client.get(f"/agents/{agent.id}/memory?block=human")
        line = await client.get(f"/why?of={block.id}:1")
        chat = await client.get(f"/agents/{agent.id}")
        (step,) = re.findall(r"/why\?of=(step-[0-9a-f-]+)", chat.text)
        answer = await client.get(f"/why?of={step}")
        unknown = await client.get("/why?of=nothing")

    assert f"/why?of={block.id}" in memory.text and f"/why?of={block.id}#v1" in memory.text
    assert "I like tea" in text_of(line.text) and f"/runs/{run_id}" in line.text
    assert "Noted." in text_of(answer.text) and "Likes tea." in text_of(answer.text)
    assert unknown.status_code == 422 and "nothing" in text_of(unknown.text)


async def test_connections_says_how_other_programs_reach_the_server() -> None:
    """Each snippet names this address; the OpenAI one an agent; with a key, they read it from the environment."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        clients = (await client.get("/connections?format=json")).json()["clients"]
    texts = {one["name"]: one["text"] for one in clients}
    for name, text in texts.items():
        if text.startswith(("from ", "import os")):
            compile(text, name, "exec")

    assert BASE in texts["letta-client, Python"] and f"{BASE}/openai/v1" in texts["OpenAI's SDK"]
    assert agent.id in texts["OpenAI's SDK"] and "PERDURE_API_KEY" not in "".join(texts.values())
    async with dashboard(config=ServerConfig(api_key="k" * 20)) as (client, _):
        headers = {"authorization": f"Bearer {'k' * 20}"}
        found = await client.get("/connections?format=json", headers=headers)
    assert found.text.count("PERDURE_API_KEY") >= 2 and "k" * 20 not in found.text


@pytest.mark.parametrize(("calling", "sentence"), [(None, ""), ("text", "writes its tool calls as text")])
async def test_connections_says_what_the_model_does_about_tools(calling: Calling | None, sentence: str) -> None:
    """As far as it is known."""
    async with dashboard() as (client, library):
        library.app.models.learn(library.app.choice.handle, calling=calling)
        page = await client.get("/connections")
        shown = (await client.get("/connections?format=json")).json()["model"]["calling"]

    assert shown.startswith(sentence) and bool(shown) == bool(sentence)
    assert shown in text_of(page.text)


def answered(tokens: int) -> ModelReply:
    """An answer to a request of so many tokens."""
    return ModelReply(parts=(Text("Noted."),), usage=Usage(input_tokens=tokens, output_tokens=100))


async def test_runs_are_plotted_with_what_they_cost() -> None:
    """The price of one model is in the catalog, and that of the other is not."""
    async with dashboard(*map(answered, (1_000, 2_000, 3_000)), model="openai/gpt-4.1") as (client, library):
        agent = await library.create_agent("Ada")
        for text in ("one", "two", "three"):
            await agent.send(text)
        page = text_of((await client.get("/runs")).text)
        data = (await client.get("/runs?format=json")).json()
    async with dashboard(*map(answered, (1_000, 2_000, 3_000))) as (client, library):
        agent = await library.create_agent("Ada")
        for text in ("one", "two", "three"):
            await agent.send(text)
        unknown = text_of((await client.get("/runs")).text)
        plots = (await client.get("/runs?format=json")).json()["plots"]

    costs = [(tokens * 2 + 100 * 8) / 1_000_000 for tokens in (1_000, 2_000, 3_000)]
    assert [run["cost"] for run in data["runs"]] == pytest.approx(costs[::-1])
    tokens, cost = data["plots"]
    assert cost["caption"] == "Cost of each run" and cost["series"][0]["values"] == pytest.approx(costs)
    assert cost["x"] == tokens["x"]
    assert "The runs below cost $0.0144 together." in page
    assert "The price of 3 runs is unknown" in unknown
    assert [plot["caption"] for plot in plots] == ["Tokens of each run"]


async def test_a_run_that_goes_on_shows_what_its_steps_took() -> None:
    """And one whose model never answered, that nothing was measured."""
    goes_on = asyncio.Event()

    async def look() -> str:
        """Look."""
        await goes_on.wait()
        return "seen"

    script = (calls("look"), says("Done."), ModelRequestRefused("the provider is down"))
    async with dashboard(*script, tools=[look]) as (client, library):
        agent = await library.create_agent("Ada")
        accepted = await agent.submit("look")
        for _ in range(500):
            twin = (await client.get(f"/runs/{accepted.run.id}?format=json")).json()
            if twin["steps"] and twin["steps"][0]["measured"]:
                break
            await asyncio.sleep(0.01)
        goes_on.set()
        with pytest.raises(RunFailed) as failed:
            await agent.send("hello")
        page = text_of((await client.get(f"/runs/{failed.value.run_id}")).text)

    assert not twin["run"]["ended"]
    assert twin["run"]["input_tokens"] == twin["steps"][0]["input_tokens"] > 0
    assert "no tokens measured" in page and re.search(r"test/scripted ~[\d,]+ –", page)


async def test_runs_of_a_free_model_cost_nothing() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", model="perdure/extractive")
        await agent.send("I live in Turin.")
        page = text_of((await client.get("/runs")).text)

    assert "The runs below cost nothing." in page


async def test_a_page_that_can_not_be_shown_says_why() -> None:
    """Not that it was not found, if it was refused; a download says it to a browser by a page, to programs by JSON."""
    none, browser = "run-123e4567-e89b-42d3-a456-426614174000", {"accept": "text/html,*/*"}
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await client.post(f"/agents/{agent.id}/memory/blocks/human", data={"value": "x"})
        wrong = await client.get(f"/agents/{agent.id}/memory?block=human&from=0&to=x")
        shown = await client.get(f"/runs/{none}/export", headers=browser)
        told = await client.get(f"/runs/{none}/export")

    assert wrong.status_code == 422 and "can't be shown" in text_of(wrong.text)
    assert "Not found" not in text_of(wrong.text)
    assert shown.status_code == told.status_code == 404
    assert "<title>Not found" in shown.text and none in told.json()["detail"]
