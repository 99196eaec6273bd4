"""Folders of files, which become text that agents read and search."""

from perdure.core.features import ArchiveUse, Feature, Noun, OrgTable, RootUse, TableUse, TextUse

_FOLDERS = (
    "FROM agent_folders a JOIN folders f ON f.id = a.folder_id WHERE a.agent_id = :agent_id AND f.org_id = :org_id"
)

FEATURE = Feature(
    name="files",
    nouns={
        "folder": Noun(modules=("commands",), help="List, attach, detach or delete folders of files."),
        "file": Noun(modules=("commands",), help="Upload, list or delete files of folders."),
    },
    routes=("routes",),
    pages=("agent_pages",),
    tabs={"files": "/files"},
    sections={"data": "pages:SECTION"},
    tools="tools",
    store_parts={"folders": "folder_service:AsyncFolders"},
    agent_parts={"files": "folder_service:AsyncAgentFiles"},
    services=("worker:FileWorker",),
    has={
        "folders": "EXISTS (SELECT 1 FROM agent_folders x JOIN folders d ON d.id = x.folder_id"
        " WHERE x.agent_id = {agent} AND d.org_id = a.org_id)"
    },
    tables=(TableUse(name="agent_files", key=("file_id",), at_once="is_open = 1"),),
    roots=(
        RootUse(
            name="folders",
            key="folder_id",
            parts={"agent_folders": "agent_id"},
            of_agents=("agent_folders",),
            unique="name",
            is_in_prompts=True,
            reference="few, and joined with those of each agent",
        ),
    ),
    org_tables=(
        *(
            OrgTable(name=name, of=("file_id", "files"), family="file_parts")
            for name in ("file_parts", "file_pages", "file_uploads")
        ),
        OrgTable(
            name="files",
            why="a row for each file without its text; joined with those that an agent has open",
            queues={"files": "t.status NOT IN ('completed', 'error', 'deleted')"},
        ),
    ),
    text_tables=(
        TextUse(
            name="folders",
            place="settings",
            owners="archives",
            owner="archive_id",
            texts=("description", "instructions", "metadata"),
        ),
        TextUse(
            name="files",
            place="settings",
            owners="files",
            owner="id",
            texts=("name", "original_name", "problem", "title", "warnings"),
        ),
        TextUse(
            name="file_parts",
            place="file",
            owners="files",
            owner="file_id",
            key=("seq",),
            texts=("text",),
            is_wide=True,
        ),
    ),
    text_owners={
        "archives": (
            f"SELECT f.archive_id AS id {_FOLDERS}",
            "SELECT a.agent_id FROM agent_folders a JOIN folders f ON f.id = a.folder_id WHERE f.archive_id = :id",
        ),
        "files": (
            f"SELECT i.id AS id {_FOLDERS.replace(' WHERE', ' JOIN files i ON i.folder_id = f.id WHERE')}"
            " AND i.status <> 'deleted'",
            "SELECT a.agent_id FROM agent_folders a JOIN files i ON i.folder_id = a.folder_id WHERE i.id = :id",
        ),
    },
    one_form={"folders name": ("id", "o.org_id = t.org_id")},
    counts={
        "files counted": (
            "folders",
            "file_count",
            "archive_id = :id",
            "SELECT COUNT(*) FROM files f JOIN folders d ON d.id = f.folder_id"
            " WHERE d.archive_id = :id AND f.status <> 'deleted'",
        )
    },
    archives=(ArchiveUse(table="folders", columns=("archive_id",), holds="what a folder's files say", kind="folder"),),
    points={
        "agent_fields": "wire:agent_fields",
        "agent_states": "folder_service:folders_of",
        "archives_of": "units:archives_of",
        "convert": "converters.convert:convert",
        "erased": "forgetting:drop_object",
        "erase_rows": "forgetting:erase_rows",
        "file_blocks": "routes:file_blocks",
        "forget_in_file": "forgetting:forget_in_file",
        "is_searched": "section:is_searched",
        "memory_deltas": "section:memory_deltas",
        "memory_versions": "section:memory_versions",
        "passage_source": "units:passage_source",
        "prefix_section": "section:prefix_section",
        "read_file": "tools:read_whole",
        "restore_file": "forgetting:restore_file",
        "set_belongings": "folder_service:set_folders",
        "shown_sources": "section:shown_sources",
        "source_shape": "wire:Folder",
        "still_read": "forgetting:still_read",
        "work_waits": "units:has_work",
    },
)
