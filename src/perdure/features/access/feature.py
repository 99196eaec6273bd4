"""Who may use a store through a server: organisations with users and keys, and the log of who did what."""

from __future__ import annotations

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="access",
    nouns={
        "org": Noun(modules=("commands",), help="Create, list or delete organisations; audit."),
        "user": Noun(modules=("commands",), help="Create, list or delete users."),
        "key": Noun(modules=("commands",), help="Create, list, revoke or delete API keys; show the server's own."),
    },
    routes=("routes",),
    pages=("pages",),
    one_form={"users name": ("id", "o.org_id = t.org_id")},
    points={
        "gate": "gate:StoreGate",
        "open_access": "service:open_access",
        "open_organisation": "organisations:open_organisation",
    },
)
