"""Answers held against the OpenAPI document: status, media type and body, of every answer that a test asks for."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import jsonschema_rs
from starlette.routing import Route

from perdure.server.serving import openapi
from perdure.server.serving.app import Api
from tests.server.leaks import problems_of
from tests.server.shared_document import own_build, share

openapi.build = share(own_build)

STREAM = "text/event-stream"
URI = "https://perdure.example/openapi.json"
"""Of the document, for references; nothing is fetched there."""

OF_BODIES = {413, 415}
"""What any request with a body can be answered, also where the document says that there is none."""

_documents: dict[bool, _Document] = {}
"""Whether there is a key -> the document, which costs more to make than most tests."""


class _Document:
    def __init__(self, app: Api) -> None:
        self._shape: Mapping[str, Any] = app.openapi()
        self._registry = jsonschema_rs.Registry([(URI, {"components": self._shape["components"]})])

    @functools.cache  # noqa: B019  # there are two of them, for the whole process
    def problem(self, method: str, path: str, status: int, media_type: str) -> str | jsonschema_rs.Validator | None:
        """What is wrong before the body is read; else what checks the body, if anything does."""
        operation = self._shape["paths"].get(path, {}).get(method.lower())
        if operation is None:
            return f"the document has no {method} {path}"
        if status in OF_BODIES and "requestBody" not in operation:
            return None
        responses = operation["responses"]
        response = responses.get(str(status))
        if response is None:
            return f"it has no status {status}, only {', '.join(responses)}"
        content = response.get("content", {})
        if media_type not in content and (content or media_type):
            return f"the answer {status} is {media_type or 'empty'}, and not {', '.join(content) or 'empty'}"
        schema = content.get(media_type, {}).get("schema")
        if media_type == STREAM:
            event = self._shape["components"]["schemas"][schema["items"]["$ref"].rpartition("/")[2]]
            chunk = event["properties"]["data"].get("anyOf", [{}])[-1].get("contentSchema")
            schema = chunk and {"type": "array", "items": chunk}
        if schema is None:
            return None
        absolute = json.loads(json.dumps(schema).replace('"#/', f'"{URI}#/'))
        return jsonschema_rs.validator_for(absolute, registry=self._registry)


def documented(app: Api, *, has_key: bool = False) -> Callable[[httpx.Response], Awaitable[None]]:
    """A hook of a client of `app` that fails where the document does not say what was answered, and where a refusal
    says too much."""

    async def check(response: httpx.Response) -> None:
        if response.status_code >= 400:
            await response.aread()
            assert not (problems := problems_of(response)), f"{problems}: {response.text}"
        request = response.request
        route = _route_of(app, request)
        if route is None or response.status_code == 405:
            return
        document = _documents.get(has_key) or _documents.setdefault(has_key, _Document(app))
        media_type = response.headers.get("content-type", "").partition(";")[0]
        found = document.problem(request.method, route.path_format, response.status_code, media_type)
        where = f"{request.method} {route.path_format}"
        assert not isinstance(found, str), f"{where}: {found}"
        if found is not None:
            await response.aread()
            value: Any
            if media_type == STREAM:
                value = _events(response)
            else:
                value = response.json() if media_type.endswith("json") else response.text
            errors = [f"{error.instance_path}: {error.message:.300}" for error in found.iter_errors(value)]
            assert not errors, f"{where} {response.status_code}: {errors[:3]}"

    return check


def _events(response: httpx.Response) -> list[Any]:
    """The chunks of a stream."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _route_of(app: Api, request: httpx.Request) -> Route | None:
    for path in (request.url.path, f"{request.url.path}/", request.url.path.rstrip("/")):
        for route in app.routes:
            if isinstance(route, Route) and request.method in (route.methods or ()) and route.path_regex.match(path):
                return route if route.include_in_schema else None
    return None
