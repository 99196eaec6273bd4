"""What is true of every refusal: of each class of error, and of generated bad requests to each operation."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import httpx
import pytest

from perdure.core.errors import ConversationBusy, GroupBusy, PerdureError
from perdure.core.ids import PREFIXES
from perdure.server.serving.openapi import DESCRIPTIONS
from perdure.server.wire.errors import error_answer
from tests.server.leaks import leaks_in, problems_of
from tests.server.routed import BASE, routed
from tests.server.test_bad_input import UUID4, id_parameters
from tests.server.test_openapi import operations
from tests.support.cases import for_each

FULL = os.environ.get("PERDURE_FAULTS") == "full"

TEMPORARY = (ConversationBusy, GroupBusy)
"""Conflicts that end by themselves: the same request may succeed later."""

WRONG: Sequence[Any] = (None, True, 1.5, "", "x\0", [None], {"a": [None, True]}, "None")
FACTS: dict[str, Any] = {
    "int": 7,
    "float": 0.5,
    "Sequence[str]": ("ada",),
    "Sequence[int]": (7,),
    "Mapping[str, int]": {"ada": 7},
}
"""Type of an error's fact -> a value; of all others a text."""


def classes_of(root: type[PerdureError]) -> Iterator[type[PerdureError]]:
    yield root
    for below in root.__subclasses__():
        yield from classes_of(below)


ROOMS = ("perdure.core.", "perdure.server.")
ERRORS = sorted(
    {kind for kind in classes_of(PerdureError) if kind.__module__.startswith(ROOMS)}, key=lambda kind: kind.__name__
)


def build(kind: type[PerdureError]) -> PerdureError:
    """An error of this class with a value for each fact that it needs."""
    if kind.__init__ in (Exception.__init__, ValueError.__init__):
        return kind("ada")
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    needed = {
        one.name: one.annotation.removesuffix(" | None")
        for one in parameters
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    }
    return kind(**{name: FACTS.get(annotation, "ada") for name, annotation in needed.items()})


@for_each(ERRORS)
def test_an_error_is_answered_with_clean_text(kind: type[PerdureError]) -> None:
    """With a status that the document describes; a conflict is tried again only if it ends by itself."""
    answer = error_answer(build(kind))
    text = bytes(answer.body).decode()

    assert answer.status_code in DESCRIPTIONS
    assert leaks_in(text) == []
    if answer.status_code == 409:
        assert (answer.headers.get("x-should-retry") is None) == issubclass(kind, TEMPORARY)


def wrong_bodies(example: Any) -> Iterator[Any]:
    """Bodies like this one with wrong values: in all fields at once, or in the long form in one after the other."""
    if not isinstance(example, dict):
        yield from WRONG
        return
    for first in range(len(WRONG) if FULL else 1):
        yield dict(zip(example, islice(cycle(WRONG), first, None), strict=False))
    for name in example if FULL else ():
        yield from ({**example, name: value} for value in WRONG)


def bad_requests(name: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(path, query, body) of requests to an operation, most of which it refuses."""
    ids: dict[str, str] = defaultdict(lambda: "x")
    ids |= {one: f"{PREFIXES[kind]}-{UUID4}" for one, kind in id_parameters(operation).items()}
    path = name.split()[1].format_map(ids)
    queries = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    example = content.get("example")
    if ids:
        yield path, None, example
    if isinstance(example, dict):
        models = re.findall(r"#/components/schemas/(\w+)", repr(content["schema"]))
        example = {field: None for model in models for field in schemas[model].get("properties", ())} | example
    if content:
        yield from ((path, None, body) for body in wrong_bodies(example))
    if queries:
        yield path, dict.fromkeys(queries, "x\0"), example


@pytest.mark.slow
@pytest.mark.uses("access", "facts", "files", "groups", "mcp", "schedules")
async def test_refusals_of_every_operation_are_clean() -> None:
    """Wrong values in bodies and queries, and ids of nothing: no defect, and nothing of the server's inside."""
    wrong: list[str] = []
    refused = 0
    async with (
        routed() as server,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=server.app), base_url=BASE) as client,
    ):
        document = server.app.openapi()
        for name, operation in operations(document):
            for path, query, body in bad_requests(name, operation, document["components"]["schemas"]):
                answer = await client.request(name.split()[0], path, params=query, json=body)
                if answer.status_code >= 400:
                    refused += 1
                    sent = json.dumps(query or body)[:200]
                    wrong += [f"{name} {answer.status_code} {sent}: {why} {answer.text}" for why in problems_of(answer)]

    assert not wrong, f"{len(wrong)} refusals:\n" + "\n".join(wrong[:20])
    assert refused > 250
