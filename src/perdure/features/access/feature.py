"""Who may use a store through a server: organisations with users and keys, and the log of who did what."""

from perdure.core.features import Feature, Noun, OrgTable

FEATURE = Feature(
    name="access",
    nouns={
        "org": Noun(modules=("commands",), help="Create, list or delete organisations; audit."),
        "user": Noun(modules=("commands",), help="Create, list or delete users."),
        "key": Noun(modules=("commands",), help="Create, list, revoke or delete API keys; show the server's."),
    },
    routes=("routes",),
    pages=("pages",),
    org_tables=(
        OrgTable(name="users", why="few, and of no agent", is_own=True),
        OrgTable(
            name="api_keys", why="found by their digest, once in a few seconds for each key", is_own=True, is_local=True
        ),
        OrgTable(name="audit_entries", why="appended to in one order", is_own=True, is_local=True),
    ),
    one_form={"users name": ("id", "o.org_id = t.org_id")},
    points={
        "gate": "gate:StoreGate",
        "open_access": "service:open_access",
        "open_organisation": "organisations:open_organisation",
    },
)
