"""What routes share: the open store, pages of lists, JSON answers, and work that ends when its client leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from perdure.core.ids import DEFAULT_ORG
from perdure.core.incoming.principals import LOCAL, Principal, Scope, ScopeTooSmall
from perdure.core.tasks import end_tasks
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import LIMIT_MAX, Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.fields import AgentIdIn, IdFormat

T = TypeVar("T")

Order = Literal["asc", "desc"]
OrderBy = Literal["created_at"] | None
Limit = Annotated[int | None, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]

CLIENT_GONE = 499
"""The status of an answer that nobody sees: the client has left."""

# Some clients split event streams at these characters too. JSON has them in strings only, so they can be escaped.
_LINE_ENDS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}


_BUILDING = threading.RLock()  # the document reads every route in a thread


class LateRoute(APIRoute):
    """A route that is built at its first request, as building all takes half of the start's time and a tenth of the
    memory. Its endpoint returns the value to answer in JSON, without the framework's validation, or a response."""

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Any]], **options: Any) -> None:
        def build() -> None:
            """Build the route of the framework."""

            @wraps(endpoint)
            async def answer(**arguments: Any) -> Response:
                """Call the endpoint, and return its value as a response."""
                value = await endpoint(**arguments)
                if isinstance(value, Response):
                    return value
                return Response(status_code=204) if options["status_code"] == 204 else json_answer(value)

            super(LateRoute, self).__init__(path, answer, **options | {"response_model": None})

        self._build: Callable[[], None] | None = build
        self.path, self.endpoint, self.name = path, endpoint, endpoint.__name__
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods, self.include_in_schema = set(options["methods"]), options["include_in_schema"]

    def __getattr__(self, name: str) -> Any:
        """What the route has only when it is built."""
        with _BUILDING:
            if build := self.__dict__.get("_build"):
                self._build = None
                build()
        return self.__getattribute__(name)


class Router(APIRouter):
    """A router of routes that are built late."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=LateRoute, **options)


def library_of(request: Request) -> AsyncPerdure:
    """The open store of the organisation that the request is for."""
    library: AsyncPerdure = request.scope.get("perdure.library") or request.app.state.perdure
    return library


def wants_page(request: Request) -> bool:
    """Whether a browser opens an address that is not the API's: programs ask for JSON, or for anything."""
    if request.method not in ("GET", "HEAD") or request.scope["path"].startswith("/v1/"):
        return False
    return "text/html" in request.headers.get("accept", "") and request.query_params.get("format") != "json"


def principal_of(request: Request) -> Principal:
    """Who the request is for."""
    principal: Principal = request.scope.get("perdure.principal", LOCAL)
    return principal


def require_scope(request: Request, scope: Scope, *, what: str) -> None:
    """Check that the request's key has at least this scope. Raises: ScopeTooSmall: naming `what` needs it."""
    if not (principal := principal_of(request)).may(scope):
        raise ScopeTooSmall(f"{what} needs a key with the scope {scope!r}, and yours has {principal.scope!r}")


def rules_machine(request: Request) -> bool:
    """Whether the request is of the default organisation, whose administrators may name private addresses. Those of
    other organisations may name what clients of the API may."""
    return principal_of(request).org_id == DEFAULT_ORG


def is_whole_server(request: Request) -> bool:
    """Whether the request is of an administrator of the default organisation, who may see what all others share."""
    principal = principal_of(request)
    return principal.may("admin") and principal.org_id == DEFAULT_ORG


# The framework would call a dependency that is no coroutine in a thread, which costs as much as a small answer.
async def _library(request: Request) -> AsyncPerdure:
    return library_of(request)


Library = Annotated[AsyncPerdure, Depends(_library)]


async def agent_of(agent_id: AgentIdIn, library: Library) -> AsyncAgentById:
    """The agent that the path names, which is not looked up."""
    return library.agent_of(agent_id)


ThisAgent = Annotated[AsyncAgentById, Depends(agent_of)]


def pages(kind: str, *, limit: int = 50, order: Order = "desc", order_by: Any = OrderBy) -> Any:
    """The annotation `Annotated[Page, pages("block", limit=100)]`: the page that a client asks for.

    A list is a bare JSON array. `after=<id of the last item>` is the next page, `before=<id of the first item>` the one
    before; both are relative to the order. `ascending` is the older name of `order`, which wins.

    Args:
        kind: a key of `core.ids.PREFIXES`; other ids are refused with 422.
        limit, order: the defaults.
        order_by: the type of the parameter `order_by`, which the page does not hold.
    """
    default_limit, default_order = limit, order
    cursor = Annotated[Annotated[str, IdFormat(kind)] | None, Query(description=f"The id of a {kind} of the list.")]

    async def page(
        limit: Limit = None,
        order: Order | None = None,
        before: str | None = None,
        after: str | None = None,
        order_by: str | None = None,
        ascending: Annotated[bool | None, Query(deprecated=True)] = None,
    ) -> Page:
        """Return the page that the query's parameters ask for."""
        if order is None:
            order = default_order if ascending is None else "asc" if ascending else "desc"
        return Page(default_limit if limit is None else limit, order == "asc", after, before)

    # Annotations are texts here, and FastAPI could not look a local name up in them.
    page.__annotations__ |= {"before": cursor, "after": cursor, "order_by": order_by}
    return Depends(page)


class Json(Response, Generic[T]):
    """A JSON answer as a whole response. A route that returns a `Json[Agent]` is so described in the document."""

    kind: ClassVar[Any]

    def __class_getitem__(cls, kind: Any) -> type[Json[Any]]:
        return type(cls.__name__, (cls,), {"kind": kind})  # a class of its own, which the framework takes for an answer


def json_bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8, on one line. A lone surrogate, which has no UTF-8, is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
    for character, escape in _LINE_ENDS.items():
        text = text.replace(character, escape)
    return text.encode("utf-8", "backslashreplace")  # as JSON escapes it


def json_answer(value: Any) -> Json[Any]:
    """A JSON answer without the framework's validation."""
    return Json(json_bytes(value), media_type="application/json")


@asynccontextmanager
async def form_with_file(request: Request) -> AsyncIterator[tuple[FormData, UploadFile]]:
    """Read a form, and return it with its file within the block. Raises: RequestValidationError: it has none."""
    async with request.form(max_files=1, max_fields=20) as form:
        if not isinstance(part := form.get("file"), UploadFile):
            error = {"type": "missing", "loc": ("body", "file"), "msg": "a file is needed, as multipart/form-data"}
            raise RequestValidationError([error])
        yield form, part


def forget_body(request: Request) -> None:
    """Let go of a body that was read: the request stays until its answer ends, and a stream may take an hour."""
    for name in ("_body", "_json"):
        vars(request).pop(name, None)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or cancel it when the client disconnects. The request's body must have been read.

    Raises: HTTPException: the client disconnected first, and `work` has ended; whatever `work` raises.
    """
    task = asyncio.ensure_future(work)
    departure = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, departure}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HTTPException(CLIENT_GONE, "the client has left")
    finally:
        await end_tasks(task, departure)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
