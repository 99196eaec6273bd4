"""Why an answer: the few places that hold its words, and the page that names them."""

from __future__ import annotations

import pytest

from perdure.testing import calls, says
from tests.ui.browser import dashboard, text_of

HUMAN = "Maria keeps a garden in Turin.\nLikes tea with lemon.\nWorks from home on Tuesdays."


async def test_an_answer_rests_on_the_lines_and_messages_that_hold_its_words() -> None:
    """The line of the block comes first; what was said of something else is not among them."""
    answer = says("Bruni can come on Tuesday: you work from home then.")
    async with dashboard(says("Noted."), says("Yes."), answer) as (client, library):
        agent = await library.create_agent("Ada", human=HUMAN)
        for text in ("The plumber is called Bruni.", "It rains in Genoa.", "When can he mend the boiler?"):
            reply = await agent.send(text)
        page = (await client.get("/why", params={"of": reply.run_id, "format": "json"})).json()
        shown = (await client.get("/why", params={"of": reply.run_id})).text

        assert [(one["what"], one["text"]) for one in page["evidence"]] == [
            ("Memory", "Works from home on Tuesdays."),
            ("Message", "The plumber is called Bruni."),
        ]
        for one in page["evidence"]:
            assert (await client.get(one["address"])).status_code == 200
            assert one["address"].replace("&", "&amp;") in shown
    assert "None, version None" not in shown
    assert text_of(shown).index("It rests on") < text_of(shown).index("The whole request")


@pytest.mark.parametrize(("value", "line"), [("Works from home on Tuesdays.", ":1"), ("Likes tea.", "")])
async def test_a_line_that_has_moved_or_gone_since_is_found(value: str, line: str) -> None:
    """Of one that is gone, the block is shown."""
    async with dashboard(says("You work from home on Tuesdays.")) as (client, library):
        agent = await library.create_agent("Ada", human=HUMAN)
        reply = await agent.send("When am I in?")
        await agent.blocks.update("human", value)
        page = (await client.get("/why", params={"of": reply.run_id, "format": "json"})).json()
        block = await agent.blocks.get("human")
        shown = await client.get(page["evidence"][0]["address"])

    assert page["evidence"][0]["address"] == f"/why?of={block.id}{line}"
    assert shown.status_code == 200


async def test_an_answer_of_no_memory_says_so() -> None:
    async with dashboard(says("Lisbon.")) as (client, library):
        agent = await library.create_agent("Ada")
        reply = await agent.send("What is the capital of Portugal?")
        shown = text_of((await client.get("/why", params={"of": reply.run_id})).text)

    assert "Nothing in the request holds the words of this answer" in shown


async def test_a_search_is_named_with_its_tool() -> None:
    script = calls("archival_memory_search", query="boiler"), says("The boiler is a Vaillant of 2019.")
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.archive("The boiler in the cellar is a Vaillant, bought in 2019.")
        reply = await agent.send("Which make is ours?")
        page = (await client.get("/why", params={"of": reply.run_id, "format": "json"})).json()

    assert {"Search", "Recalled"} & {one["what"] for one in page["evidence"]}


async def test_what_a_reset_took_away_has_no_link() -> None:
    async with dashboard(says("Noted."), says("Bruni mends it.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("The plumber is called Bruni.")
        reply = await agent.send("Who mends the boiler?")
        await agent.reset()
        page = await client.get("/why", params={"of": reply.run_id})
        twin = (await client.get("/why", params={"of": reply.run_id, "format": "json"})).json()

    assert page.status_code == 200 and "Message: a person" in text_of(page.text)
    assert {one["address"] for one in twin["evidence"]} == {None}


async def test_a_memory_that_was_forgotten_is_not_quoted() -> None:
    async with dashboard(says("The boiler is a Vaillant of 2019.")) as (client, library):
        agent = await library.create_agent("Ada")
        stored = await agent.archive("The boiler is a Vaillant, bought in 2019.")
        reply = await agent.send("Which boiler is it?")
        before = (await client.get("/why", params={"of": reply.run_id})).text
        await agent.delete_passages([stored.id])
        after = (await client.get("/why", params={"of": reply.run_id})).text

    start = "It rests on"
    assert "Vaillant, bought" in before.split(start)[1].split("The whole request")[0]
    assert "It was forgotten." in after and "Vaillant, bought" not in after


async def test_a_message_that_was_forgotten_is_not_quoted_in_the_request_either() -> None:
    """Nor on the page of the run; what was said again later is."""
    async with dashboard(says("Noted."), says("Bruni mends it."), says("Bruni.")) as (client, library):
        agent = await library.create_agent("Ada", human="Our plumber is called Bruni.")
        await agent.send("The plumber is called Bruni.")
        reply = await agent.send("Who mends the boiler?")
        pages = [f"/why?of={reply.run_id}", f"/runs/{reply.run_id}?step={(await agent.steps())[0].id}"]
        assert all(["called Bruni" in (await client.get(page)).text for page in pages])
        await agent.forget("plumber is called Bruni")
        shown = [(await client.get(page)).text for page in (pages[0], f"{pages[0]}&format=json", pages[1])]
        later = await agent.send("No: the plumber is called Bruni.")
        again = (await client.get(f"/why?of={later.run_id}")).text

    assert not any("called Bruni" in page for page in shown) and "[redacted]" in shown[0]
    assert "plumber is called Bruni" in again
