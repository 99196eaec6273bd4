"""Search engines of the web: how each is asked, and what its answer holds.

Endpoints and fields are those of their public documentation: exa.ai/docs/reference/search,
docs.tavily.com/api-reference/endpoint/search, api-dashboard.search.brave.com, docs.searxng.org/dev/search_api.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Protocol

import httpx

__all__ = ["ENGINES", "Brave", "Exa", "Hit", "SearXNG", "SearchEngine", "SearchQuery", "Tavily"]

BRAVE_QUERY_CHARS = 400
EXCERPT_CHARS = 600
TEXT_CHARS = 5_000
RANGES = ((1, "day"), (7, "week"), (31, "month"), (366, "year"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is looked for. `since` and `until` are days, both included; `country` has two letters."""

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
        """The query with its domains as operators, for engines that know no other way."""
        wanted = " OR ".join(f"site:{domain}" for domain in self.include_domains)
        return " ".join(filter(None, (self.text, wanted, *(f"-site:{domain}" for domain in self.exclude_domains))))


@dataclass(frozen=True, slots=True)
class Hit:
    """One result. `published` is as the engine writes it; empty where it does not know."""

    title: str
    url: str
    published: str
    excerpt: str


class SearchEngine(Protocol):
    """One engine, with the key or address it is asked with."""

    @property
    def name(self) -> str: ...

    @property
    def variable(self) -> str:
        """The variable that its key or address comes from."""
        ...

    @property
    def secret(self) -> str:
        """What must not be shown; empty: nothing."""
        ...

    def request(self, query: SearchQuery) -> httpx.Request: ...

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        """What an answer holds, best first; fields it should have and has not are empty."""
        ...


@dataclass(frozen=True, slots=True)
class Exa:
    secret: str
    base_url: str = "https://api.exa.ai"
    name: str = "Exa"
    variable: str = "EXA_API_KEY"

    _CATEGORIES: ClassVar = frozenset(
        {"company", "people", "research paper", "news", "personal site", "financial report"}
    )

    def request(self, query: SearchQuery) -> httpx.Request:
        category = "people" if query.category == "linkedin profile" else query.category
        body = {
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
        body = {key: value for key, value in body.items() if value is not None}
        return httpx.Request("POST", f"{self.base_url}/search", headers={"x-api-key": self.secret}, json=body)

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return [
            Hit(
                _text(entry, "title"),
                _text(entry, "url"),
                _text(entry, "publishedDate"),
                _text(entry, "text") or " … ".join(filter(None, map(_plain, _entries(entry, "highlights")))),
            )
            for entry in _mappings(answer, "results")
        ]


@dataclass(frozen=True, slots=True)
class Tavily:
    secret: str
    base_url: str = "https://api.tavily.com"
    name: str = "Tavily"
    variable: str = "TAVILY_API_KEY"

    _TOPICS: ClassVar = {"news": "news", "financial report": "finance"}

    def request(self, query: SearchQuery) -> httpx.Request:
        body = {
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
        body = {key: value for key, value in body.items() if value is not None}
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx.Request("POST", f"{self.base_url}/search", headers=headers, json=body)

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return [
            Hit(
                _text(entry, "title"),
                _text(entry, "url"),
                _text(entry, "published_date"),
                _text(entry, "raw_content") or _text(entry, "content"),
            )
            for entry in _mappings(answer, "results")
        ]


@dataclass(frozen=True, slots=True)
class Brave:
    secret: str
    base_url: str = "https://api.search.brave.com"
    name: str = "Brave"
    variable: str = "BRAVE_API_KEY"

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
        web = answer.get("web")
        return [
            Hit(
                _text(entry, "title"),
                _text(entry, "url"),
                _text(entry, "page_age") or _text(entry, "age"),
                " … ".join(
                    filter(None, [_text(entry, "description"), *map(_plain, _entries(entry, "extra_snippets"))])
                ),
            )
            for entry in _mappings(web if isinstance(web, Mapping) else {}, "results")
        ]


@dataclass(frozen=True, slots=True)
class SearXNG:
    """An instance of one's own; its settings have to offer the format `json`."""

    base_url: str
    secret: str = ""
    name: str = "SearXNG"
    variable: str = "PERDURE_SEARXNG_URL"

    _CATEGORIES: ClassVar = {"news": "news", "research paper": "science"}

    def request(self, query: SearchQuery) -> httpx.Request:
        fields = {"q": query.with_sites, "format": "json"}
        if query.category in self._CATEGORIES:
            fields["categories"] = self._CATEGORIES[query.category]
        if query.since is not None:
            days = (_today() - query.since).days
            if (range_ := next((name for most, name in RANGES if days <= most), None)) is not None:
                fields["time_range"] = range_
        return httpx.Request("GET", f"{self.base_url.rstrip('/')}/search", params=fields)

    def hits(self, answer: Mapping[str, Any]) -> Sequence[Hit]:
        return [
            Hit(_text(entry, "title"), _text(entry, "url"), _text(entry, "publishedDate"), _text(entry, "content"))
            for entry in _mappings(answer, "results")
        ]


ENGINES: Mapping[str, str] = {
    "exa": "EXA_API_KEY",
    "tavily": "TAVILY_API_KEY",
    "brave": "BRAVE_API_KEY",
    "searxng": "PERDURE_SEARXNG_URL",
}
"""Engine -> the variable that turns it on, in the order in which they are chosen."""


def _today() -> date:
    return datetime.now(UTC).date()


def _entries(shape: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = shape.get(name)
    return found if isinstance(found, list) else ()


def _mappings(shape: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in _entries(shape, name) if isinstance(entry, Mapping)]


def _text(entry: Mapping[str, Any], name: str) -> str:
    return _plain(entry.get(name))


def _plain(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
