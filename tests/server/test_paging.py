"""Pages: where one begins and ends, whichever way the list is sorted."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import NotFound
from perdure.library.parts.checks import Page
from tests.server.routed import new_agent, routed

LETTERS = list("abcdefg")


def page(**fields: Any) -> list[str]:
    asked = Page(**{"limit": 3, "ascending": True} | fields)
    return asked.select(LETTERS, kind="letter", id_of=lambda letter: letter)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, "abc"),
        ({"after": "c"}, "def"),
        ({"after": "g"}, ""),
        ({"before": "d"}, "abc"),
        ({"before": "g"}, "def"),
        ({"before": "b"}, "a"),
        ({"before": "a"}, ""),
        ({"after": "a", "before": "d"}, "bc"),
        ({"after": "a", "before": "g"}, "bcd"),
        ({"after": "d", "before": "b"}, ""),
        ({"ascending": False}, "gfe"),
        ({"ascending": False, "after": "e"}, "dcb"),
        ({"ascending": False, "before": "e"}, "gf"),
        ({"ascending": False, "before": "a"}, "dcb"),
        ({"limit": 100}, "abcdefg"),
    ],
)
def test_cursors_are_relative_to_the_order(asked: dict[str, Any], shown: str) -> None:
    """`after` is what comes later in the list as it is shown; `before` alone is the page that ends just there."""
    assert page(**asked) == list(shown)


def test_a_cursor_that_is_not_in_the_list_is_told() -> None:
    """A page can't begin at what is gone."""
    with pytest.raises(NotFound, match="letter 'x' not found: `after` must be one of the list"):
        page(after="x")


LISTS = {
    "/v1/agents/": "agent",
    "/v1/blocks/": "block",
    "/v1/agents/{agent}/core-memory/blocks": "block",
    "/v1/agents/{agent}/tools": "tool",
    "/v1/agents/{agent}/archival-memory": "passage",
    "/v1/blocks/{block}/agents": "agent",
}


async def test_what_is_no_page_is_refused() -> None:
    """Every list names the parameter that is wrong (422), and says when a cursor leads nowhere (404)."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": ""}])
        wrong = []
        for path, kind in LISTS.items():
            path = path.format(agent=agent["id"], block=agent["blocks"][0]["id"])
            for name, value in (
                ("limit", 0),
                ("limit", -1),
                ("limit", 10**9),
                ("limit", "many"),
                ("order", "up"),
                ("after", "x"),
                ("before", "message-00000000-0000-4000-8000-000000000000"),
                ("ascending", "perhaps"),
            ):
                status, detail = await server.refused("GET", path, **{name: value})
                if status != 422 or name not in detail:
                    wrong.append((path, name, value, status, detail))
            nowhere = f"{kind}-00000000-0000-4000-8000-000000000000"
            for name in ("after", "before"):
                status, detail = await server.refused("GET", path, **{name: nowhere})
                if status != 404 or nowhere not in detail:
                    wrong.append((path, name, nowhere, status, detail))

        assert wrong == []


async def test_pages_backwards_meet_each_item_once() -> None:
    """`before=<first item>` leads back through the whole list, in either order."""
    async with routed() as server:
        names = [f"agent {number}" for number in range(5)]
        for name in names:
            await new_agent(server, name)
        for order, expected in (("asc", names), ("desc", names[::-1])):
            last = (await server.get("/v1/agents/", order=order))[-1]
            seen = [last["name"]]
            before = last["id"]
            while items := await server.get("/v1/agents/", order=order, limit=2, before=before):
                seen = [item["name"] for item in items] + seen
                before = items[0]["id"]

            assert seen == expected


async def test_ascending_is_the_older_name_of_order() -> None:
    """`order` wins if both are given."""
    async with routed() as server:
        for name in ("old", "new"):
            await new_agent(server, name)

        async def first(**params: Any) -> str:
            return str((await server.get("/v1/agents/", **params))[0]["name"])

        assert await first() == "new"
        assert await first(ascending=True) == "old"
        assert await first(ascending=True, order="desc") == "new"
