"""Pages: a handler returns the data of its page, which is shown as HTML, or as JSON with `?format=json`."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.datastructures import URL, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.features import find_features
from perdure.core.ids import AgentId, is_id
from perdure.core.text.line_diff import diff_lines
from perdure.core.text.reprs import plural
from perdure.library.agent import AsyncAgentById
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.errors import error_answer
from perdure.server.wire.http import library_of, principal_of
from perdure.ui.answers import address_of, page_answer
from perdure.ui.conflicts import FormConflict
from perdure.ui.live import feed_of

if TYPE_CHECKING:
    from jinja2 import Environment


JSON = "application/json"
Data = dict[str, Any]
Load = Callable[[Request, AsyncPerdure], Awaitable[Data]]

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Only this server's own files run, no other page can frame these, and no proxy keeps them."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What an action did, shown above its page.

    Args:
        undo: the path of the action that takes it back.
        fields: what that action is sent.
        location: with a text, the address of the action's own page from now on; without one, another page that is
            opened instead.
        link: (address, text) of the page where one goes on.
    """

    text: str
    undo: str | None = None
    fields: Mapping[str, str] | None = None
    is_error: bool = False
    location: str | None = None
    link: tuple[str, str] | None = None


Act = Callable[[Request, AsyncPerdure], Awaitable[Notice]]


class DashboardPage:
    """A page: its template, the function that loads its data, sections of features, and whether it updates itself."""

    def __init__(self, load: Load, template: str, sections: Sequence[Section] = (), *, is_live: bool = False) -> None:
        self._load, self._template, self._sections, self._is_live = load, template, sections, is_live

    async def show(self, request: Request, notice: Notice | None = None, status: int = 200) -> Response:
        """Answer with the page as HTML or JSON, or with one that says why it can't be loaded; `status` is for HTML."""
        library = library_of(request)
        is_json = request.query_params.get("format") == "json"
        try:
            # Before the page is read: what changes meanwhile is not missed.
            feed = await feed_of(request, library) if self._is_live and not is_json else None
            data = await self._load(request, library)
            sections = {section.name: await section.load(request, library) for section in self._sections}
            for section in self._sections:
                data |= sections[section.name] if section.is_of_page else {}
        except PerdureError as error:
            answer = error_answer(error)
            if is_json:
                return answer
            return error_page(error, request)
        if is_json:
            text = json.dumps({**sections, **data}, ensure_ascii=False, default=str)
            return Response(text.encode("utf-8", "backslashreplace"), headers=dict(HEADERS), media_type=JSON)
        data |= {"conflict": getattr(request.state, "conflict", None), "feed": feed}
        data["waiting_calls"] = await library.approvals.count()
        shown = {one.name: sections[one.name] for one in self._sections if one.is_shown_empty or sections[one.name]}
        return html(self._template, data | {"sections": shown}, request, notice=notice, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What a feature shows on a page of the kernel.

    Args:
        name: the name of its template, and of its data in the page's JSON.
        load: loads its data, which the template has as `section`.
        actions: path of a form -> the function that it calls; the page is shown after it.
        is_shown_empty: whether it is shown also if its data are empty.
        is_of_page: whether its data, a mapping, are also fields of the page itself.
    """

    name: str
    load: Callable[[Request, AsyncPerdure], Awaitable[Any]]
    actions: Mapping[str, Act]
    is_shown_empty: bool = False
    is_of_page: bool = False


def sections_of(page: str) -> Sequence[Section]:
    """The sections that features have for the kernel's page of this name."""
    return [feature.load(feature.sections[page]) for feature in find_features() if page in feature.sections]


class Pages:
    """Collects the routes of one module's pages and of their actions; `paths` are the paths of the pages.

    Args:
        link: the name of a link to the first of them in the head of all pages; empty: there is no link.
    """

    def __init__(self, link: str = "") -> None:
        self.link = link
        self.routes: list[BaseRoute] = []
        self.paths: list[str] = []

    def get(
        self, path: str, template: str, *, sections: str = "", is_live: bool = False
    ) -> Callable[[Load], DashboardPage]:
        """Register the function that loads a page's data; the page shows the features' sections for `sections`."""

        def register(load: Load) -> DashboardPage:
            """Add the page that `load` makes, and the actions of its sections."""
            shown = sections_of(sections)
            page = DashboardPage(load, template, shown, is_live=is_live)
            for section in shown:
                for action, act in section.actions.items():
                    self.post(action, shows=page)(act)

            async def endpoint(request: Request) -> Response:
                """Show the page."""
                return await page.show(request)

            self.paths.append(path)
            self.add(path, endpoint)
            return page

        return register

    def post(self, path: str, *, shows: DashboardPage) -> Callable[[Act], Act]:
        """Register an action; after it the page `shows` is shown, with what the action did or why it did not."""

        def register(act: Act) -> Act:
            """Add the route of an action."""

            async def endpoint(request: Request) -> Response:
                """Carry out the action, and show its page with a notice, or the error."""
                try:
                    notice = await act(request, library_of(request))
                except PerdureError as error:
                    if isinstance(error, FormConflict):
                        where = {"action": url_of(request), "back": url_of(request, _current_url(request))}
                        request.state.conflict = where | error.choice
                    return await shows.show(request, Notice(str(error), is_error=True), error_answer(error).status_code)
                if notice.location is not None and not notice.text:
                    return Response(status_code=204, headers={**HEADERS, "hx-redirect": notice.location})
                answer = await shows.show(request, notice)
                if notice.location is not None:
                    answer.headers["hx-push-url"] = notice.location
                return answer

            self.routes.append(Route(path, endpoint, methods=["POST"]))
            return act

        return register

    def add(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], *methods: str) -> None:
        """Register a route that is no page: a file, a stream."""
        self.routes.append(Route(path, endpoint, methods=list(methods or ("GET",))))


def feature_pages() -> Sequence[Any]:
    """The modules of features with pages."""
    return [feature.load(module) for feature in find_features() for module in feature.pages]


LINKS = (
    *(("/", "Home"), ("/runs", "Runs"), ("/approvals", "Approvals"), ("/connections", "Connections")),
    *(("/data", "Data"), ("/settings", "Settings")),
)
"""(Path, name) of the links in the head of all pages."""


def html(
    template: str, data: Mapping[str, Any], request: Request, *, notice: Notice | None = None, status: int = 200
) -> Response:
    """The answer with a template's HTML."""
    # After an action the browser still shows the address of the page, not the action's.
    shown = request.url if request.method == "GET" else _current_url(request)
    values = {"sort": sort_of(request), **data, "notice": notice, "path": shown.path, "query": request.query_params}
    values["may_administer"] = principal_of(request).may("admin")
    values["snippets"] = _snippets(request, shown)
    text = environment().get_template(template).render(values)
    return page_answer(text, request, HEADERS, status=status)


def error_page(error: PerdureError, request: Request) -> Response:
    """The page that says why another one, or a download, can't be shown."""
    status = error_answer(error).status_code
    title = "Not found" if status == 404 else "This can't be shown"
    return html("error.html", {"error": str(error), "title": title}, request, status=status)


def _current_url(request: Request) -> URL:
    """The address that the browser of an action shows; that of the home page if it says none, or a wrong one."""
    url = URL(request.headers.get("hx-current-url", "/"))
    try:
        url.hostname  # noqa: B018  # it is parsed only now
    except ValueError:
        return URL("/")
    return url


def url_of(request: Request, url: URL | None = None) -> str:
    """The path of the request, or of another `url`, with its query."""
    found = url or request.url
    return f"{found.path}?{found.query}" if found.query else found.path


def _snippets(request: Request, shown: URL) -> list[tuple[str, str]]:
    """(Language, code) of programs that load the page at `shown`, the address in the browser, as JSON."""
    address = str(request.base_url.replace(path=shown.path, query=shown.query).include_query_params(format="json"))
    curl, python = f"curl {shlex.quote(address)}", f"page = httpx.get({address!r}"
    if request.app.state.gate.needs_key:
        curl += ' -H "Authorization: Bearer $PERDURE_API_KEY"'
        python += ', headers={"Authorization": f"Bearer {os.environ[\'PERDURE_API_KEY\']}"}'
    imports = "import os\n\nimport httpx" if "os.environ" in python else "import httpx"
    return [("curl", curl), ("Python", f"{imports}\n\n{python}).json()")]


@functools.cache
def environment() -> Environment:
    """The environment of the templates: every value is escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    shown = [feature for feature in find_features() if (feature.folder / "templates").is_dir()]
    made = Environment(
        loader=ChoiceLoader([PackageLoader("perdure.ui"), *(PackageLoader(one.package) for one in shown)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals["static"] = address_of
    made.globals |= {"waiting_calls": 0, "feed": None}  # on pages that are not loaded from a store
    made.globals["tabs"] = [tab for feature in find_features() for tab in feature.tabs.items()]
    of_features = [(one.pages.paths[0], one.pages.link) for one in feature_pages() if one.pages.link]
    made.globals["links"] = [LINKS[0], *of_features, *LINKS[1:]]
    made.globals["features"] = {feature.name for feature in find_features()}
    made.globals["paths"] = {path for page in feature_pages() for path in page.pages.paths}
    return made


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, as texts. Line ends are `\\n`, as in the value before the browser sent it."""
    form = await request.form()
    return {name: value.replace("\r\n", "\n") for name, value in form.items() if isinstance(value, str)}


def field_of(form: Mapping[str, str], name: str) -> str:
    """A field that a form must have. Raises: InvalidInput: it is missing or blank."""
    value = form.get(name, "")
    if not value.strip():
        raise InvalidInput(f"{name}: the field is empty; fill it in")
    return value


def in_words(error: InvalidInput, titles: Mapping[str, str]) -> InvalidInput:
    """Return the error with the title of a field in place of its name at the beginning; `titles`: name -> title."""
    name = re.split("[ :]", str(error), maxsplit=1)[0]
    return InvalidInput(titles[name] + str(error)[len(name) :]) if name in titles else error


def is_number(text: str) -> bool:
    """Whether a text is a whole number that a store may hold. "²" is a digit to Python, and no number."""
    return text.isascii() and text.isdecimal() and len(text) <= 12


def agent_id_of(request: Request) -> AgentId:
    """The agent of the path. Raises: InvalidInput."""
    value: str = request.path_params["agent_id"]
    if not is_id("agent", value):
        raise InvalidInput(f"{value!r} is not an agent's id: one looks like agent-123e4567-e89b-42d3-a456-426614174000")
    return AgentId(value)


def agent_of(request: Request, library: AsyncPerdure) -> AsyncAgentById:
    """The agent of the path, which is not looked up. Raises: InvalidInput."""
    return library.agent_of(agent_id_of(request))


def sort_of(request: Request) -> str:
    """Return the column by which the browser's page is sorted, which an action on it keeps; empty: none."""
    shown = request.query_params if request.method == "GET" else QueryParams(_current_url(request).query)
    return shown.get("sort", "")


def in_order(rows: Sequence[Data], request: Request, columns: Mapping[str, str]) -> list[Data]:
    """Return the rows sorted by the page's `sort`, a column, descending after "-"; unchanged without it. `columns`:
    column -> field. Rows without a value come last."""
    sort = sort_of(request)
    name = columns.get(sort.removeprefix("-"))
    if name is None:
        return [*rows]
    known = [row for row in rows if row[name] not in (None, "")]
    known.sort(key=lambda row: row[name].lower() if isinstance(row[name], str) else row[name], reverse=sort[0] == "-")
    return known + [row for row in rows if row[name] in (None, "")]


def after_of(items: Sequence[Any], limit: int) -> str | None:
    """The cursor of the next page: the id of the last item of a full page."""
    return items[-1].id if len(items) == limit else None


_UNITS = ((365 * 86_400, "y"), (30 * 86_400, "mo"), (7 * 86_400, "w"), (86_400, "d"), (3_600, "h"), (60, "min"))
ID_CHARS = 8


def ago(moment: datetime | str | None) -> str:
    """How long ago a time was, in its largest unit."""
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - _time(moment)).total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def _time(moment: datetime | str) -> datetime:
    """Return a time, given as one or as text."""
    return datetime.fromisoformat(moment) if isinstance(moment, str) else moment


def iso(moment: datetime | str) -> str:
    """A time in full, in UTC."""
    return _time(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def date_of(moment: datetime | None) -> str:
    """The day of a time in its zone, as the field of a form has it; empty without one."""
    return "" if moment is None else moment.date().isoformat()


def day(moment: datetime) -> str:
    """The day of a time in its zone, for people."""
    return f"{moment:%-d %b %Y}"


def number(value: float | None) -> str:
    """A whole number with thousands separated; an unknown one is a dash."""
    return "–" if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    """A price in US dollars; an unknown one is a dash."""
    if value is None:
        return "–"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def seconds(value: float) -> str:
    """A length of time in its usual unit: 0.25 s, 12 s, 3 min 20 s."""
    if value >= 60:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def percent(part: float, whole: float) -> str:
    """A share, with one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def short(identifier: str) -> str:
    """The beginning of an id, which is enough to recognise it."""
    kind, _, rest = identifier.partition("-")
    return f"{kind}-{rest[:ID_CHARS]}"


def diff_rows(diff: str) -> Sequence[Mapping[str, str]]:
    """The lines of a difference: each with its `kind` (`add`, `del`, `at`, `same`) and `text`."""
    kinds = {"+": "add", "-": "del", "…": "at", " ": "same"}
    lines = diff_lines(diff) if diff else ()
    return [{"kind": kinds[mark], "text": f"{mark}{' ' if mark == '…' else ''}{text}"} for mark, text in lines]


def author(kind: str) -> str:
    """Who wrote something, in words."""
    return {"user": "a person", "agent": "the agent", "system": "Perdure", "file": "a file"}.get(kind, kind)


def pretty(value: Any) -> str:
    """JSON for people; a text that is JSON is parsed first."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _in_address(value: Any) -> str:
    """Return a text as it stands in an address, or an object, name -> text, as a query."""
    if isinstance(value, Mapping):
        return urlencode(value, errors="replace")
    return quote(str(value), errors="replace")


def markdown(text: str) -> Any:
    """A text in Markdown as HTML that templates show as it is."""
    from markupsafe import Markup

    from perdure.ui.markdown import markdown_html

    return Markup(markdown_html(text))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "iso": iso,
    "date_of": date_of,
    "day": day,
    "number": number,
    "plural": plural,
    "dollars": dollars,
    "percent": percent,
    "seconds": seconds,
    "short": short,
    "author": author,
    "diff_rows": diff_rows,
    "pretty": pretty,
    "markdown": markdown,
    "urlencode": _in_address,
}
