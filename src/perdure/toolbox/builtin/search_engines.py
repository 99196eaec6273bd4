"""Search engines of the web: how each is sent a query, and how its answer is read.

Each engine has a `name`, the `variable` of the environment that its key or address comes from, the `secret` that must
not be shown, `request`, which builds the HTTP request of a query, and `hits`, which reads an answer, best hit first.

Endpoints and fields are those of their public documentation: exa.ai/docs/reference/search,
docs.tavily.com/api-reference/endpoint/search, api-dashboard.search.brave.com, docs.searxng.org/dev/search_api.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import httpx

BRAVE_QUERY_CHARS = 400
EXCERPT_CHARS = 600
TEXT_CHARS = 5_000
_TIME_RANGES = ((1, "day"), (7, "week"), (31, "month"), (366, "year"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A search. `since` and `until` are days, both included; `country` has two letters."""

    text: str
    count: int = 10
    category: str = ""
    include_text: bool = False
    include_domains: tuple[str, ...] = ()
    exclude_domains: tuple[str, ...] = ()
    since: date | None = None
    until: date | None = None
    country: str = ""

    @property
    def with_sites(self) -> str:
        """The query with its domains as operators, for engines without fields for them."""
        included = " OR ".join(f"site:{domain}" for domain in self.include_domains)
        return " ".join(filter(None, (self.text, included, *(f"-site:{domain}" for domain in self.exclude_domains))))


@dataclass(frozen=True, slots=True)
class Hit:
    """One result. `published` is as the engine writes it, or empty."""

    title: str
    url: str
    published: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Exa:
    secret: str
    base_url: str = "https://api.exa.ai"

    name: ClassVar[str] = "Exa"
    variable: ClassVar[str] = "EXA_API_KEY"
    _CATEGORIES: ClassVar = frozenset(
        {"company", "people", "research paper", "news", "personal site", "financial report"}
    )

    def request(self, query: SearchQuery) -> httpx.Request:
        category = "people" if query.category == "linkedin profile" else query.category
        fields = {
            "query": query.text,
            "type": "auto",
            "numResults": query.count,
            "category": category if category in self._CATEGORIES else None,
            "includeDomains": list(query.include_domains) or None,
            "excludeDomains": list(query.exclude_domains) or None,
            "startPublishedDate": f"{query.since.isoformat()}T00:00:00.000Z" if query.since else None,
            "endPublishedDate": f"{query.until.isoformat()}T23:59:59.999Z" if query.until else None,
            "userLocation": query.country.upper() or None,
            "contents": {"text": {"maxCharacters": TEXT_CHARS}} if query.include_text else {"highlights": True},
        }
        return _post(f"{self.base_url}/search", fields, {"x-api-key": self.secret})

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return _hits(answer, ("publishedDate",), lambda entry: _text(entry, "text") or _join(entry, "highlights"))


@dataclass(frozen=True, slots=True)
class Tavily:
    secret: str
    base_url: str = "https://api.tavily.com"

    name: ClassVar[str] = "Tavily"
    variable: ClassVar[str] = "TAVILY_API_KEY"
    _TOPICS: ClassVar = {"news": "news", "financial report": "finance"}

    def request(self, query: SearchQuery) -> httpx.Request:
        fields = {
            "query": query.text,
            "topic": self._TOPICS.get(query.category, "general"),
            "search_depth": "basic",
            "max_results": min(query.count, 20),
            "include_domains": list(query.include_domains) or None,
            "exclude_domains": list(query.exclude_domains) or None,
            "start_date": query.since.isoformat() if query.since else None,
            "end_date": query.until.isoformat() if query.until else None,
            "include_raw_content": True if query.include_text else None,
        }
        return _post(f"{self.base_url}/search", fields, {"Authorization": f"Bearer {self.secret}"})

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return _hits(answer, ("published_date",), lambda entry: _text(entry, "raw_content") or _text(entry, "content"))


@dataclass(frozen=True, slots=True)
class Brave:
    secret: str
    base_url: str = "https://api.search.brave.com"

    name: ClassVar[str] = "Brave"
    variable: ClassVar[str] = "BRAVE_API_KEY"

    def request(self, query: SearchQuery) -> httpx.Request:
        fields = {
            "q": query.with_sites[:BRAVE_QUERY_CHARS],
            "count": str(min(query.count, 20)),
            "text_decorations": "false",
        }
        if query.since or query.until:
            since = query.since or date(2000, 1, 1)
            fields["freshness"] = f"{since.isoformat()}to{(query.until or _today()).isoformat()}"
        if query.country:
            fields["country"] = query.country.upper()
        headers = {"X-Subscription-Token": self.secret, "Accept": "application/json"}
        return httpx.Request("GET", f"{self.base_url}/res/v1/web/search", headers=headers, params=fields)

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        results = answer.get("web")
        return _hits(results, ("page_age", "age"), lambda entry: _join(entry, "description", "extra_snippets"))


@dataclass(frozen=True, slots=True)
class SearXNG:
    """An instance of SearXNG; its settings have to offer the format `json`."""

    base_url: str
    secret: str = ""

    name: ClassVar[str] = "SearXNG"
    variable: ClassVar[str] = "PERDURE_SEARXNG_URL"
    _CATEGORIES: ClassVar = {"news": "news", "research paper": "science"}

    def request(self, query: SearchQuery) -> httpx.Request:
        fields = {"q": query.with_sites, "format": "json"}
        if query.category in self._CATEGORIES:
            fields["categories"] = self._CATEGORIES[query.category]
        if query.since is not None:
            days = (_today() - query.since).days
            if (range_ := next((name for most_days, name in _TIME_RANGES if days <= most_days), None)) is not None:
                fields["time_range"] = range_
        return httpx.Request("GET", f"{self.base_url.rstrip('/')}/search", params=fields)

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return _hits(answer, ("publishedDate",), lambda entry: _text(entry, "content"))


SearchEngine = Exa | Tavily | Brave | SearXNG
ENGINES: Mapping[str, type[SearchEngine]] = {
    "exa": Exa,
    "tavily": Tavily,
    "brave": Brave,
    "searxng": SearXNG,
}
"""Name -> engine, in the order of preference. Each is built from the value of its `variable`."""


def _today() -> date:
    return datetime.now(UTC).date()


def _post(url: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Request:
    """A POST request with the fields that have a value, as JSON."""
    body = {name: value for name, value in fields.items() if value is not None}
    return httpx.Request("POST", url, headers=headers, json=body)


def _hits(answer: Any, published: Sequence[str], excerpt: Callable[[Mapping[str, Any]], str]) -> list[Hit]:
    """The hits among the `results` of an answer.

    Args:
        published: the fields that may have the day, the better first.
        excerpt: builds the excerpt of an entry.
    """
    return [
        Hit(
            title=_text(entry, "title"),
            url=_text(entry, "url"),
            published=next(filter(None, (_text(entry, name) for name in published)), ""),
            excerpt=excerpt(entry),
        )
        for entry in _get_list(answer, "results")
        if isinstance(entry, Mapping)
    ]


def _get_list(fields: Any, name: str) -> Sequence[Any]:
    """The list in a field; empty if there is none."""
    entries = fields.get(name) if isinstance(fields, Mapping) else None
    return entries if isinstance(entries, list) else ()


def _join(entry: Mapping[str, Any], *names: str) -> str:
    """The texts of these fields and of the lists in them, joined."""
    texts = (one for name in names for one in (_get_list(entry, name) or (entry.get(name),)))
    return " … ".join(filter(None, map(_one_line, texts)))


def _text(entry: Mapping[str, Any], name: str) -> str:
    """The text of a field on one line; empty if there is none."""
    return _one_line(entry.get(name))


def _one_line(value: Any) -> str:
    """A text with single spaces; empty for any other value."""
    return " ".join(value.split()) if isinstance(value, str) else ""
