"""Folders of files, which become text that agents read and search."""

from __future__ import annotations

from perdure.core.features import ArchiveUse, Feature, Noun

FEATURE = Feature(
    name="files",
    nouns={
        "folder": Noun(modules=("commands",), help="List, attach, detach or delete folders of files."),
        "file": Noun(modules=("commands",), help="Upload, list or delete files of folders."),
    },
    routes=("routes",),
    sections={"data": "pages:SECTION"},
    tools="tools",
    store_parts={"folders": "service.folders:AsyncFolders"},
    agent_parts={"files": "service.folders:AsyncAgentFiles"},
    services=("worker:FileWorker",),
    has={
        "folders": "EXISTS (SELECT 1 FROM agent_folders x JOIN folders d ON d.id = x.folder_id"
        " WHERE x.agent_id = :agent_id AND d.org_id = a.org_id)"
    },
    archives=(ArchiveUse(table="folders", columns=("archive_id",), holds="what a folder's files say", kind="folder"),),
    points={
        "agent_fields": "wire:agent_fields",
        "agent_states": "service.folders:folders_of",
        "archives_of": "units:archives_of",
        "convert": "converters.convert:convert",
        "erased": "worker:drop_object",
        "file_blocks": "routes:file_blocks",
        "is_searched": "section:is_searched",
        "memory_deltas": "section:memory_deltas",
        "memory_versions": "section:memory_versions",
        "passage_source": "units:passage_source",
        "prefix_section": "section:prefix_section",
        "read_file": "tools:read_whole",
        "set_belongings": "service.folders:set_folders",
        "shown_sources": "section:shown_sources",
        "source_shape": "wire:Folder",
        "work_waits": "units:has_work",
    },
)
