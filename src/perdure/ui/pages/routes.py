"""The routes of the dashboard: its pages, its files, and signing in."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure.server.access.gate import Gate
from perdure.server.access.session import COOKIE, SESSION_S
from perdure.ui.answers import asset_answer, assets
from perdure.ui.render import HEADERS, Notice, environment, feature_pages, form_of, html


def page_modules() -> Sequence[Any]:
    """The modules of `ui.pages` and of the features that have `pages`."""
    names = sorted(one.name for one in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}."))
    return [module for module in (*map(import_module, names), *feature_pages()) if hasattr(module, "pages")]


def build_routes() -> list[BaseRoute]:
    """Every route of the dashboard, in the order in which they are looked up."""
    routes: Sequence[BaseRoute] = [route for module in page_modules() for route in module.pages.routes]
    return [
        Route("/static/{name}", static, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["GET"]),
        Route("/sign-in", sign_in_by_key, methods=["POST"]),
        *routes,
    ]


TITLES = {404: "Page not found", 405: "Page not found", 429: "Too many requests", 503: "Busy"}


def refused_page(request: Request, status: int, text: str) -> Response:
    """The page in place of an answer that would only be an error; a form keeps what is in it, and shows a notice.

    Who is not signed in, or asks under a name that is not the server's, gets one that needs no other address of it.
    """
    title = TITLES.get(status, "Not allowed" if status < 500 else "Something went wrong")
    if status == 401:
        title, text = "Not signed in", "You are not signed in, or there is no page at this address."
    if "perdure.principal" not in request.scope:
        page = environment().get_template("refused.html").render(title=title, error=text, status=status)
        return Response(page, status, headers=dict(HEADERS), media_type="text/html")
    is_action = request.method not in ("GET", "HEAD")
    data = {"error": "Nothing was changed." if is_action else text, "title": title}
    return html("error.html", data, request, notice=Notice(text, is_error=True) if is_action else None, status=status)


async def static(request: Request) -> Response:
    """A file of the dashboard."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    return asset_answer(asset, request, HEADERS)


async def sign_in(request: Request) -> Response:
    """Exchange the token of a link for a cookie, or show the form that asks for the key."""
    gate: Gate = request.app.state.gate
    token = request.query_params.get("token")
    cookie = None if token is None else await gate.sessions.redeem(token)
    problem = token is not None and cookie is None and gate.needs_key
    answer = _key_page(request, 200, problem=problem, signed_in=cookie is not None)
    if cookie is not None:
        _set_cookie(answer, cookie, request)
    return answer


async def sign_in_by_key(request: Request) -> Response:
    """Exchange the API key for a cookie."""
    gate: Gate = request.app.state.gate
    source = request.client.host if request.client is not None else ""
    if wait_s := gate.sessions.guesses.wait_s(source):
        answer = _key_page(request, 429, problem=True, wait_s=wait_s)
        answer.headers["retry-after"] = str(wait_s)
        return answer
    cookie = await gate.sessions.sign_in((await form_of(request)).get("key", ""))
    if cookie is None:
        gate.sessions.guesses.note(source)
        return _key_page(request, 401, problem=True)
    gate.sessions.guesses.forget(source)
    answer = Response(status_code=204, headers={**HEADERS, "hx-redirect": "/"})
    _set_cookie(answer, cookie, request)
    return answer


def _key_page(request: Request, status: int, *, problem: bool, signed_in: bool = False, wait_s: int = 0) -> Response:
    """The page that asks for the key."""
    own_key = request.app.state.gate.sessions.has_own_key
    data = {"problem": problem, "signed_in": signed_in, "own_key": own_key, "wait_s": wait_s}
    return html("sign_in.html", data, request, status=status)


def _set_cookie(answer: Response, value: str, request: Request) -> None:
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, value, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure)
