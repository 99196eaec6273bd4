"""Searching the history and the archive, as an agent's tools do it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.core.errors import InvalidArguments, InvalidInput
from perdure.core.messages import Reasoning, ToolCall, ToolResult
from perdure.engine.search.tools import MAX_RESULTS, SHOWN_CHARS
from perdure.search.ranking.query import parse_time
from perdure.testing.clock import START
from tests.support.agents import AgentInRun, agent_in_run


async def search_contents(s: AgentInRun, **arguments: Any) -> list[str]:
    """The contents that conversation_search gives."""
    return [result["content"] for result in (await s.json("conversation_search", **arguments))["results"]]


async def archived(s: AgentInRun, **arguments: Any) -> list[str]:
    """The contents that archival_memory_search gives."""
    return [result["content"] for result in await s.json("archival_memory_search", **arguments)]


# -- conversation_search -----------------------------------------------------------------------------------------------


async def test_history_is_searched_best_first() -> None:
    """Each result says when, how long ago, by whom, how it was found and what; the message says how many there are."""
    s = await agent_in_run()
    await s.say("the walrus and the walrus", at=START - timedelta(days=3))
    await s.say("a walrus once sat beside the sea and sang to many other animals", role="assistant")
    await s.say("nothing of interest")
    answer = await s.json("conversation_search", query="Walruses")
    best, second = (result.pop("relevance") for result in answer["results"])

    assert (best["search_mode"], second["search_mode"], best["score"] > second["score"]) == ("fts", "fts", True)
    assert answer["message"] == "Showing 2 results:"
    assert answer["results"] == [
        {
            "timestamp": "2026-11-17T10:00:00+00:00",
            "time_ago": "3 days ago",
            "role": "user",
            "content": "the walrus and the walrus",
        },
        {
            "timestamp": "2026-11-20T10:00:00+00:00",
            "time_ago": "just now",
            "role": "assistant",
            "content": "a walrus once sat beside the sea and sang to many other animals",
        },
    ]


async def test_roles_are_kept_to() -> None:
    """One role or several; other roles are refused before anything is searched."""
    s = await agent_in_run()
    await s.say("walrus one")
    await s.say("walrus two", role="assistant")
    await s.say(ToolResult("c", "look", "walrus three"), role="tool")

    assert await search_contents(s, query="walrus", roles=["assistant"]) == ["walrus two"]
    assert sorted(await search_contents(s, query="walrus", roles=["user", "tool"])) == ["walrus one", "walrus three"]
    assert len(await search_contents(s, query="walrus")) == 3
    with pytest.raises(InvalidArguments, match="must be one of"):
        await search_contents(s, query="walrus", roles=["user'); DROP TABLE messages --"])


async def test_dates_are_the_agents_own() -> None:
    """A date is a whole day where the agent lives: in Tokyo the 20th begins on the 19th at 15:00 UTC."""
    s = await agent_in_run(timezone="Asia/Tokyo")
    for hour, text in (
        (14, "walrus before"),
        (15, "walrus at midnight"),
        (38, "walrus at its end"),
        (39, "walrus after"),
    ):
        await s.say(text, at=datetime(2026, 11, 19, tzinfo=UTC) + timedelta(hours=hour))

    day = await search_contents(s, query="walrus", start_date="2026-11-20", end_date="2026-11-20")
    assert sorted(day) == ["walrus at its end", "walrus at midnight"]
    assert await search_contents(s, query="walrus", end_date="2026-11-19") == ["walrus before"]
    assert await search_contents(s, query="walrus", start_date="2026-11-21") == ["walrus after"]
    assert await search_contents(s, query="walrus", start_date="2026-11-21T00:00", end_date="2026-11-21T00:00") == [
        "walrus after"
    ]
    assert await search_contents(s, query="walrus", end_date="2026-11-19T14:30:00Z") == ["walrus before"]


async def test_dates_that_are_none_are_told() -> None:
    """The message shows how to write one."""
    s = await agent_in_run()
    for text in ("yesterday", "2026-13-01", "20.11.2026", "2026-11-20T25:00"):
        with pytest.raises(InvalidInput, match="2026-11-20T15:30"):
            await search_contents(s, query="walrus", start_date=text)


async def test_results_are_limited() -> None:
    """Five unless asked otherwise, never more than fifty, never less than one."""
    s = await agent_in_run()
    for index in range(MAX_RESULTS + 5):
        await s.say(f"walrus {index}")

    assert [len(await search_contents(s, query="walrus", **limit)) for limit in ({}, {"limit": 7}, {"limit": 999})] == [
        5,
        7,
        50,
    ]
    assert len(await search_contents(s, query="walrus", limit=-3)) == 1


async def test_what_is_being_said_just_now_is_not_found() -> None:
    """The current run is in view anyway."""
    s = await agent_in_run()
    await s.say("an old walrus")
    await s.begin_run()
    await s.say("where is the walrus?")

    assert await search_contents(s, query="walrus") == ["an old walrus"]
    assert await search_contents(s) == ["an old walrus"]


@pytest.mark.parametrize("query", [{}, {"query": ""}, {"query": "  "}])
async def test_without_a_query_the_newest_come(query: dict[str, str]) -> None:
    """Newest first, within the dates and roles given."""
    s = await agent_in_run()
    for index in range(4):
        await s.say(
            f"message {index}", role="assistant" if index == 3 else "user", at=START - timedelta(days=9 - index)
        )

    newest = (await s.json("conversation_search", limit=2, **query))["results"]
    assert [result["content"] for result in newest] == ["message 3", "message 2"]
    assert newest[0]["relevance"] == {"search_mode": "newest"}
    assert await search_contents(s, roles=["user"], end_date="2026-11-12", **query) == ["message 1", "message 0"]


async def test_a_phrase_is_loosened_only_when_it_finds_nothing() -> None:
    """First the words side by side, then each by itself."""
    s = await agent_in_run()
    await s.say("the big red dog")
    await s.say("the red and big house")

    assert await search_contents(s, query='"big red"') == ["the big red dog"]
    assert sorted(await search_contents(s, query='"red big"')) == ["the big red dog", "the red and big house"]


async def test_words_without_spaces_between_them_are_loosened_too() -> None:
    """A Chinese query that stands nowhere as a whole finds texts that share parts of it."""
    s = await agent_in_run()
    await s.say("我喜欢喝绿茶")

    assert await search_contents(s, query="喝绿茶") == ["我喜欢喝绿茶"]
    assert await search_contents(s, query="他喜欢什么茶") == ["我喜欢喝绿茶"]


async def test_finding_nothing_is_said() -> None:
    """An empty list with a sentence, not an error; also for a query without any word."""
    s = await agent_in_run()
    await s.say("hello")
    for query in ("walrus", "?!", '""', "( ) AND NOT *"):
        assert await s.json("conversation_search", query=query) == {"message": "No results found.", "results": []}


async def test_long_messages_are_cut_in_results() -> None:
    """With the number of characters left out; the message itself stays whole."""
    s = await agent_in_run()
    await s.say("walrus " + "x" * SHOWN_CHARS)
    (content,) = await search_contents(s, query="walrus")

    assert content.endswith("… [7 more characters]")
    assert len(content) < SHOWN_CHARS + 40


async def test_only_what_was_said_is_searched() -> None:
    """Reasoning and the arguments of calls are not; search results that repeat history are not."""
    s = await agent_in_run()
    await s.say(Reasoning("walrus"), ToolCall("c", "look", '{"for": "walrus"}'), "I look.", role="assistant")
    await s.say(ToolResult("c", "conversation_search", "walrus"), role="tool")

    assert await search_contents(s, query="walrus") == []


async def test_ages_are_told_in_the_largest_unit() -> None:
    """Days, hours, minutes, just now; one is singular."""
    s = await agent_in_run()
    ages = {
        timedelta(days=400): "400 days ago",
        timedelta(hours=47): "1 day ago",
        timedelta(minutes=119): "1 hour ago",
        timedelta(seconds=150): "2 minutes ago",
        timedelta(seconds=59): "just now",
        timedelta(seconds=-99): "just now",
    }
    for age in ages:
        await s.say("walrus", at=START - age)
    answer = await s.json("conversation_search", limit=9)

    assert [result["time_ago"] for result in answer["results"]] == list(reversed(ages.values()))


# -- archival memory ---------------------------------------------------------------------------------------------------


async def test_what_is_archived_is_found_again() -> None:
    """The answer names the passage, its length and tags; it remembers which call stored it."""
    s = await agent_in_run()
    answer = await s.json(
        "archival_memory_insert", content="The walrus weighs a tonne.", tags=["sea", " sea ", "", "big"]
    )
    (result,) = await s.json("archival_memory_search", query="walrus")
    passage = await s.store.read(lambda tx: tx.passages.get(answer["id"]))

    assert answer == {"id": passage.id, "archived_chars": 26, "tags": ["sea", "big"]}
    assert result == {
        "id": passage.id,
        "timestamp": "2026-11-20T10:00:00+00:00",
        "content": "The walrus weighs a tonne.",
        "tags": ["sea", "big"],
    }
    assert passage.source == {"agent_id": s.agent.id, "run_id": s.run.id, "message_id": "message-of-the-call"}


async def test_the_first_insert_makes_the_archive() -> None:
    """And the second one uses it."""
    s = await agent_in_run()
    for text in ("one", "two"):
        await s.call("archival_memory_insert", content=text)
    (archive,) = await s.store.read(lambda tx: tx.archives.list_by_agent(s.agent.id))

    assert (archive.name, archive.passage_count) == ("ada's archive", 2)


async def test_an_empty_passage_is_refused() -> None:
    """White space is no memory, and no archive is made for it."""
    s = await agent_in_run()
    with pytest.raises(InvalidInput, match="the passage is empty"):
        await s.call("archival_memory_insert", content=" \n ")

    assert await s.store.read(lambda tx: tx.archives.list_by_agent(s.agent.id)) == []


async def test_the_archive_is_searched_by_tags() -> None:
    """Any of them, unless all are asked for."""
    s = await agent_in_run()
    for text, tags in (("walrus a", ["x"]), ("walrus b", ["x", "y"]), ("walrus c", ["y"]), ("walrus d", [])):
        await s.call("archival_memory_insert", content=text, tags=tags)

    assert sorted(await archived(s, query="walrus", tags=["x"])) == ["walrus a", "walrus b"]
    assert sorted(await archived(s, query="walrus", tags=["x", "y"])) == ["walrus a", "walrus b", "walrus c"]
    assert await archived(s, query="walrus", tags=["x", "y"], tag_match_mode="all") == ["walrus b"]
    assert await archived(s, query="", tags=["y"]) == ["walrus c", "walrus b"]
    assert await archived(s, query="walrus", tags=["z"]) == []
    with pytest.raises(InvalidArguments):
        await archived(s, query="walrus", tag_match_mode="none")


async def test_the_archive_is_searched_by_dates() -> None:
    """In the agent's time zone, as the history is."""
    s = await agent_in_run(timezone="America/New_York")
    for _ in range(3):
        s.clock.advance(86_400)
        await s.call("archival_memory_insert", content=f"walrus of the {s.clock.now():%d}")

    assert await archived(s, query="walrus", start_datetime="2026-11-22", end_datetime="2026-11-22") == [
        "walrus of the 22"
    ]
    assert await archived(s, query="", end_datetime="2026-11-22", top_k=1) == ["walrus of the 22"]
    assert await archived(s, query="walrus", start_datetime="2026-11-23T05:00", end_datetime="2026-11-23") == [
        "walrus of the 23"
    ]


async def test_the_archive_gives_its_best_matches_first() -> None:
    """As many as asked for, ten by default."""
    s = await agent_in_run()
    for index in range(12):
        await s.call("archival_memory_insert", content=f"a text that mentions a walrus in passing, number {index}")
    await s.call("archival_memory_insert", content="walrus walrus")

    results = await archived(s, query="walrus")
    assert len(results) == 10
    assert results[0] == "walrus walrus"
    assert len(await archived(s, query="walrus", top_k=3)) == 3


async def test_a_search_before_any_insert_finds_nothing() -> None:
    """There is no archive yet, which is no error."""
    s = await agent_in_run()

    assert await archived(s, query="walrus") == []


# -- dates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end", "moment"),
    [
        ("2026-11-20", False, "2026-11-19T23:00:00+00:00"),
        ("2026-11-20", True, "2026-11-20T22:59:59.999999+00:00"),
        ("20261120", False, "2026-11-19T23:00:00+00:00"),
        ("20261120", True, "2026-11-20T22:59:59.999999+00:00"),
        ("2026-03-29", True, "2026-03-29T21:59:59.999999+00:00"),  # the clocks went forward that night
        ("2026-11-20T15:30", True, "2026-11-20T14:30:00+00:00"),
        (" 2026-11-20 15:30:01 ", False, "2026-11-20T14:30:01+00:00"),
        ("2026-11-20T15:30Z", False, "2026-11-20T15:30:00+00:00"),
        ("2026-11-20T15:30-05:00", False, "2026-11-20T20:30:00+00:00"),
        ("9999-12-31", True, "9999-12-31T22:59:59.999999+00:00"),
    ],
)
def test_a_date_or_time_is_a_moment(text: str, end: bool, moment: str) -> None:
    """Without an offset it is meant where the agent lives, here in Rome."""
    parsed = parse_time("since", text, timezone="Europe/Rome", end=end)

    assert parsed == datetime.fromisoformat(moment)
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize("text", [None, "", "  "])
def test_no_date_is_none(text: str | None) -> None:
    """An absent or empty date is no bound."""
    assert parse_time("since", text) is None


@pytest.mark.parametrize("text", ["soon", "2026", "2026-11", "0001-01-01", "\ud800", "2026-11-20T15:30+99:00"])
def test_other_texts_are_no_dates(text: str) -> None:
    """Nothing is guessed; a date that has no moment in UTC is none."""
    with pytest.raises(InvalidInput, match=r"^since is .*: write a date as"):
        parse_time("since", text, timezone="Asia/Tokyo")
