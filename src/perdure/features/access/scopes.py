"""The scope that each request needs, by its method and path: one table for routes and pages.

The first rule that fits decides. A path that no rule names is for administrators only, and
`tests/features/access/test_access_matrix.py` fails when a route or page has none.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from perdure.core.incoming.principals import Scope
from perdure.server.serving.guards import PAGES

GET = "GET HEAD OPTIONS"
ANY = "GET HEAD OPTIONS POST PUT PATCH DELETE"
WRITE = "POST PUT PATCH DELETE"


@dataclass(frozen=True)
class ScopeRule:
    """What requests with one of these methods need, on paths of this form: `*` is one segment, `**` any number.

    Args:
        audited: whether a request that succeeded is noted in the audit log. Administration notes what it does itself.
        whole_server: whether it is about all organisations, so that only the default one's administrators may.
    """

    methods: str
    path: str
    scope: Scope
    audited: bool = False
    whole_server: bool = False

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the paths that the rule is about, without a final slash."""
        forms = {"**": "(?:/.*)?", "*": "/[^/]+"}
        parts = [forms.get(part) or f"/{re.escape(part)}" for part in self.path.split("/") if part]
        return re.compile("".join(parts))


def _rules() -> list[ScopeRule]:
    """List the rules of all paths; of several that fit a request the first one counts, so special paths stand first."""
    administration = [ScopeRule(ANY, f"/v1/{noun}/**", "admin") for noun in ("organizations", "users", "keys", "audit")]
    searches = [
        *("/v1/messages/search", "/v1/passages/search", "/v1/tools/search", "/v1/recall", "/v1/agents/*/recall"),
        "/mcp",  # it offers no tool that writes to who may only read
        *("/v1/agents/*/mentions", "/v1/runs/*/stream"),
        *(f"/v1/{noun}/*/messages/preview-raw-payload" for noun in ("agents", "conversations")),
    ]
    talks = [
        *("/v1/agents/*/messages/**", "/v1/agents/*/generate", "/v1/agents/*/events", "/v1/agents/*/summarize"),
        *("/v1/agents/*/recompile", "/v1/agents/*/schedule/**", "/v1/agents/*/files/**", "/v1/conversations/**"),
        "/v1/agents/*/commands/**",
        *("/openai/v1/chat/completions", "/openai/v1/responses/**"),
        *("/v1/chat/completions", "/v1/runs/**", "/v1/jobs/**", "/v1/messages/**", "/v1/steps/**"),
        *("/v1/groups/*/messages/**", "/v1/agents/*/companion/**"),
    ]
    changes = [
        *(("PATCH", f"/v1/{noun}/*/messages/*") for noun in ("agents", "groups")),
        ("PATCH DELETE", "/v1/conversations/*"),
        ("POST", "/v1/conversations/*/fork"),
        *(("DELETE", f"/{noun}/*") for noun in ("v1/runs", "openai/v1/responses")),
        (WRITE, "/v1/agents/*/schedule/**"),
    ]
    memory = [
        *("/v1/agents/*/archival-memory/**", "/v1/archives/*/passages/**", "/v1/passages/**"),
        *("/v1/agents/*/core-memory/blocks/*", "/v1/agents/*/forget", "/v1/agents/*/undo"),
        *("/v1/agents/*/memory-sources/**", "/v1/agents/*/notes/**", "/v1/agents/*/proposals/**"),
        *("/v1/agents/*/reset-messages", "/v1/groups/*/reset-messages", "/v1/facts/**", "/v1/entities/**"),
    ]
    built = [
        *("agents", "blocks", "archives", "folders", "sources", "tools", "groups", "identities", "mcp-servers"),
        *("facts", "imports", "manifests", "snapshots"),
    ]
    read = [*built, "conversations", "entities", "jobs", "messages", "models", "passages", "profiles", "providers"]
    read += ["proposals", "recall", "runs", "sandbox-config", "steps", "tags", "why", "health", "ready"]
    return [
        *administration,
        ScopeRule(ANY, "/metrics", "admin", whole_server=True),
        ScopeRule(GET, "/v1/plugins/**", "admin", whole_server=True),
        ScopeRule(WRITE, "/v1/plugins/**", "admin", audited=True, whole_server=True),
        ScopeRule(GET, "/openapi.json", "read-only"),
        ScopeRule(GET, "/docs", "read-only"),
        ScopeRule("GET HEAD OPTIONS DELETE", "/mcp", "read-only"),
        *(ScopeRule("POST", path, "read-only") for path in searches),
        ScopeRule(GET, "/v1/mcp-servers/connect/*", "builder"),  # it starts programs and opens connections
        *(ScopeRule(GET, f"/v1/{noun}/**", "read-only") for noun in read),
        *(ScopeRule(GET, f"/openai/v1/{noun}/**", "read-only") for noun in ("models", "responses")),
        *(ScopeRule(WRITE, f"/v1/agents/*/messages/{word}", "user", audited=True) for word in ("import", "capture")),
        ScopeRule(WRITE, "/v1/providers/**", "admin", audited=True),
        ScopeRule(WRITE, "/v1/sandbox-config/**", "admin", audited=True),
        ScopeRule(WRITE, "/v1/facts/settings", "builder", audited=True),
        *(
            ScopeRule(WRITE, f"/v1/agents/*/{path}", "builder", audited=True)
            for path in ("companion", "proposals/protect")
        ),
        *_GIT,
        *(ScopeRule(methods, path, "user", audited=True) for methods, path in changes),
        *(ScopeRule(WRITE, path, "user") for path in talks),
        *(ScopeRule(WRITE, path, "user", audited=True) for path in memory),
        *(ScopeRule(WRITE, f"/v1/{noun}/**", "builder", audited=True) for noun in built),
        # The dashboard.
        ScopeRule(ANY, "/settings/**", "admin"),
        ScopeRule(GET, "/data/backup", "admin", audited=True, whole_server=True),  # the file itself
        *(ScopeRule(GET, path, "read-only") for path in ("/", *(f"/{page}/**" for page in PAGES))),
        ScopeRule(WRITE, "/connections/local/**", "admin", audited=True, whole_server=True),
        ScopeRule(WRITE, "/connections/plugins/**", "admin", audited=True, whole_server=True),
        ScopeRule(WRITE, "/connections/**", "admin", audited=True),
        ScopeRule(WRITE, "/data/backup", "admin", audited=True, whole_server=True),
        ScopeRule(WRITE, "/approvals", "user", audited=True),
        *(ScopeRule("POST", f"/agents/*/{word}", "user", audited=True) for word in ("fork", "regenerate")),
        ScopeRule("POST", "/runs/*/fork", "user", audited=True),
        ScopeRule("POST", "/runs/*/snapshots/*", "builder", audited=True),
        *(ScopeRule(WRITE, path, "user") for path in ("/runs/**", "/search")),
        *(ScopeRule(WRITE, f"/agents/*/{word}", "user") for word in _CHAT),
        *(ScopeRule(WRITE, f"/groups/*/{word}", "user") for word in ("messages", "stop")),
        *(ScopeRule(WRITE, f"/agents/*/{path}", "builder", audited=True) for path in _BUILT_IN_MEMORY),
        *(ScopeRule(WRITE, f"/agents/*/{word}/**", "user", audited=True) for word in _MEMORY_PAGES),
        *(ScopeRule(WRITE, f"/{noun}/**", "builder", audited=True) for noun in ("agents", "data", "groups")),
    ]


_GIT = (
    ScopeRule(GET, "/v1/git/*/state.git/info/refs", "read-only"),
    ScopeRule("POST", "/v1/git/*/state.git/git-upload-pack", "read-only"),
    ScopeRule("POST", "/v1/git/*/state.git/git-receive-pack", "builder", audited=True),
)
_CHAT = ("messages", "stop", "take-back", "again", "answers", "reply")
_MEMORY_PAGES = ("conversations", "memory", "facts", "forget", "sources", "notes", "proposals")
_BUILT_IN_MEMORY = (
    *("memory/blocks", "memory/block-settings/**", "memory/block-detach/**"),
    *("memory/companion/on", "memory/companion/off", "facts/capture", "facts/pause"),
    "proposals/protect",
)
"""What of an agent's pages is about its blocks, companion and settings, not about what it remembers."""

RULES = tuple(_rules())


def rule_of(method: str, path: str) -> ScopeRule | None:
    """Return the first rule that fits a request; None: no rule does, so only administrators may send it."""
    return _find_rule(method, without_ids(path).rstrip("/") or "/")


def without_ids(path: str) -> str:
    """Return the path of a request with `*` in place of each id, such as `/v1/agents/*/messages`."""
    return _ID.sub("*", path)


ID = r"[a-z_-]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"(?<=/){ID}(?=/|$)")


@functools.lru_cache(maxsize=2_000)  # by the path without ids, so that few paths fill it
def _find_rule(method: str, path: str) -> ScopeRule | None:
    if path == "/":  # its pattern is empty
        return next((rule for rule in RULES if rule.path == "/" and method in rule.methods.split()), None)
    for rule in RULES:
        if method in rule.methods.split() and rule.path != "/" and rule.pattern.fullmatch(path):
            return rule
    return None
