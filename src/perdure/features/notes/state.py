"""What lies outside the store ends with what it is of: files of agents and organisations that are deleted, texts that
were prepared from a memory that was corrected, and counts of edits without a note."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable

from perdure.core.agents import Agent
from perdure.core.ids import DEFAULT_ORG, AgentId, OrgId
from perdure.features.notes.folders import CONTEXT_FILE, DIGEST_CHARS, data_folder
from perdure.features.notes.nudges import EDITS_FILE, EditCounter
from perdure.features.notes.projects import GLOBAL_TAG, PROJECT_TAG
from perdure.storage.tx import Tx

_DIGEST = re.compile(f"[0-9a-f]{{{DIGEST_CHARS}}}")


def remove_agents(agent: Agent, ids: Iterable[AgentId]) -> None:
    """Remove the files of deleted agents: `agent`, and those with `ids`."""
    for id in ids:
        _remove(f"*/*/*{id}")
    _drop_contexts(agent.tags)


def remove_organisation(org_id: OrgId) -> None:
    """Remove the files of a deleted organisation."""
    _remove(f"*/{org_id}")


def drop_contexts(tx: Tx, agent_id: AgentId) -> None:
    """Delete what was prepared from the memory of an agent, which has changed: hooks prepare it again."""
    if tx.org_id == DEFAULT_ORG and any(data_folder().glob(f"projects/*/default/*/{CONTEXT_FILE}")):
        _drop_contexts(tx.agents.get(agent_id).tags)


def clear_edits(tx: Tx, agent_id: AgentId) -> None:
    """Begin the counts of edits of an agent's projects anew, of all stores: a note was written."""
    organisation = "default" if tx.org_id == DEFAULT_ORG else tx.org_id
    digests = [tag.removeprefix(PROJECT_TAG) for tag in tx.agents.get(agent_id).tags]
    for folder in (f"*{agent_id}", *filter(_DIGEST.fullmatch, digests)):
        for path in data_folder().glob(f"projects/*/{organisation}/{folder}/{EDITS_FILE}"):
            EditCounter(path.parent).clear()


def _drop_contexts(tags: Iterable[str]) -> None:
    """Delete the contexts of the projects that these tags of an agent name, of all stores: hooks prepare them again."""
    for tag in tags:
        project = "*" if tag == GLOBAL_TAG else tag.removeprefix(PROJECT_TAG)
        if tag == GLOBAL_TAG or _DIGEST.fullmatch(project):  # users choose tags, too
            for path in data_folder().glob(f"projects/*/default/{project}/{CONTEXT_FILE}"):
                path.unlink(missing_ok=True)


def _remove(pattern: str) -> None:
    """Remove folders of projects with all in them; what can't be removed stays."""
    for folder in list(data_folder().glob(f"projects/{pattern}")):
        shutil.rmtree(folder, ignore_errors=True)
