"""Copies of whole stores: backups, a backup in a store's place, moves to another database, and its parts."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="copies",
    nouns={"store": Noun(modules=("commands",))},
    verbs={
        "backup": Noun(modules=("commands",), help="Copy the store as it is now to a new file, while agents work."),
        "restore": Noun(modules=("commands",), help="Put a backup in the place of the store."),
        "migrate-db": Noun(modules=("commands",), help="Copy a store to another database, such as PostgreSQL."),
    },
    pages=("pages",),
    sections={"data": "pages:SECTION"},
    store_parts={"backup": "service:AsyncCopies.backup"},
    points={"database_backed_up": "backups:backup_database"},
)
