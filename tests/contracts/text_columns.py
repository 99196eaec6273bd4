"""The columns in which a text could stand, and why erasing passes some of them over."""

from __future__ import annotations

from typing import Any

NUMBER_TYPES = ("INT", "REAL", "DOUBLE", "BOOL")
"""What the type of a column without a text says, such as `bigint`."""

NO_TEXTS = {
    "ids that Perdure makes": """
        agent_archives.agent_id agent_archives.archive_id agent_blocks.agent_id agent_blocks.block_id
        agent_details.agent_id agent_files.agent_id agent_files.file_id agent_folders.agent_id agent_folders.folder_id
        agent_identities.agent_id agent_identities.identity_id agent_tools.agent_id agent_tools.tool_id agents.id
        agents.org_id archive_tags.archive_id archives.id archives.org_id batches.id batches.org_id
        block_identities.block_id block_identities.identity_id block_versions.block_id block_versions.agent_id
        block_versions.run_id block_versions.message_id blocks.id blocks.org_id call_starts.agent_id captures.agent_id
        client_tools.agent_id conversation_blocks.agent_id conversation_blocks.block_id conversations.agent_id
        conversations.id correction_items.agent_id correction_items.id corrections.agent_id erasures.agent_id
        erasures.targets events.agent_id file_pages.file_id file_parts.file_id file_uploads.file_id files.id
        files.org_id files.folder_id folders.id folders.org_id folders.archive_id idempotency_keys.agent_id
        identities.id identities.org_id identities.project_id ids.id ids.org_id ids.owner_id mcp_servers.id
        mcp_servers.org_id mcp_tools.server_id mcp_tools.tool_id message_revisions.agent_id messages.agent_id
        messages.id messages.run_id messages.step_id organisations.id passage_tags.archive_id
        passages.archive_id passages.id prefixes.agent_id providers.id providers.org_id resets.agent_id
        resetting.agent_id runs.agent_id runs.id runs.org_id runs.conversation_id runs.batch_id runs.lease_owner
        runs.origin_id files.lease_owner erasures.owner
        sandbox_configs.org_id sandbox_configs.id sandbox_variables.org_id sandbox_variables.id
        sandbox_variables.config_id secrets.org_id secrets.owner_id step_exchanges.agent_id steps.agent_id steps.id
        summary_nodes.agent_id system_messages.agent_id system_messages.id token_factors.org_id tools.id tools.org_id
        model_traits.org_id
        vector_scopes.org_id vector_scopes.owner_id graphs.id graphs.org_id graphs.fact_archive_id
        graphs.entity_archive_id agent_graphs.agent_id agent_graphs.graph_id entities.graph_id entities.id
        entity_names.graph_id facts.graph_id facts.id fact_sources.graph_id episodes.graph_id episodes.id
        episodes.agent_id extractions.agent_id turns.agent_id
        view_gaps.agent_id agent_revisions.agent_id agent_revisions.tool_ids snapshots.agent_id
        fact_rules.graph_id communities.graph_id
        groups.id groups.org_id groups.manager_agent_id groups.last_message_id groups.project_id
        group_agents.group_id group_agents.agent_id group_blocks.group_id group_blocks.agent_id group_blocks.block_id
        group_turns.group_id group_turns.lease_owner group_messages.group_id group_messages.sender_id
        group_messages.run_id group_messages.message_id group_messages.chosen_id
        companion_passes.agent_id companion_passes.group_id companion_passes.companion_id
        companion_passes.last_message_id companion_passes.run_id
        proposals.agent_id proposals.target_id proposals.proposer_id proposals.run_id proposals.message_id
        helpers.agent_id helpers.helper_id imported.agent_id imported.id
        memory_histories.agent_id memory_packs.agent_id memory_commits.agent_id memory_commits.thing
        memory_files.agent_id memory_files.author_id
        openai_histories.agent_id openai_histories.conversation_id openai_histories.said_in
        proposals.decided_by skills.agent_id skill_versions.agent_id skill_versions.run_id
        skill_versions.evidence_id skill_versions.written_by skill_uses.agent_id
        schedules.id schedules.agent_id schedule_firings.agent_id schedule_firings.run_id
        message_sources.agent_id memory_sources.owner_id memory_sources.ref memory_sources.agent_id
        memory_sources.run_id memory_sources.message_id memory_sources.reverted_by
        manifest_things.org_id manifest_things.thing_id
        users.id users.org_id api_keys.id api_keys.org_id api_keys.user_id audit_entries.org_id audit_entries.user_id
        audit_entries.key_id audit_entries.object_id audit_entries.trace_id used.org_id used.owner_id
    """,
    "names, by which people and programs find a thing": """
        agents.name agents.model agents.timezone
        agent_revisions.model agent_revisions.timezone snapshots.created_by
        agents.created_by agents.updated_by archives.name blocks.label
        blocks.created_by blocks.updated_by block_versions.label block_versions.author_id conversation_blocks.label
        folders.name identities.identifier_key identities.name idempotency_keys.idempotency_key call_starts.call_id
        message_revisions.author_id organisations.name resets.author_id messages.sender_id steps.model
        summary_nodes.model prefixes.changes
        model_traits.model model_traits.traits
        token_factors.model vector_scopes.model embedding_cache.model passages.embedding_model graphs.name
        entities.type facts.type groups.termination_token group_turns.idempotency_key group_messages.sender_name
        users.name api_keys.name helpers.name manifest_things.manifest manifest_things.name
    """,
    "times": """
        memory_files.changed_at
        agent_files.used_at agents.last_run_at agents.created_at agents.updated_at archives.created_at
        archives.updated_at batches.created_at batches.callback_due_at block_versions.created_at blocks.created_at
        blocks.updated_at call_starts.started_at captures.captured_at conversations.archived_at
        conversations.created_at conversations.updated_at conversations.last_message_at conversations.removed_at
        corrections.created_at corrections.undone_at embedding_queue.not_before erasures.created_at
        erasures.updated_at erasures.ended_at events.created_at file_uploads.created_at files.created_at
        files.updated_at files.lease_until folders.created_at folders.updated_at identities.created_at
        identities.updated_at mcp_servers.created_at mcp_servers.updated_at mcp_servers.listed_at
        message_revisions.created_at messages.created_at messages.occurred_at organisations.created_at
        passages.created_at passages.occurred_at passages.updated_at prefixes.created_at providers.synced_at
        providers.created_at providers.updated_at resets.created_at runs.lease_until runs.created_at runs.started_at
        runs.ended_at runs.callback_due_at sandbox_configs.created_at sandbox_configs.updated_at
        sandbox_variables.created_at sandbox_variables.updated_at schema_migrations.applied_at secrets.created_at
        secrets.updated_at steps.created_at steps.ended_at summary_nodes.since summary_nodes.until
        summary_nodes.created_at summary_nodes.revised_at
        system_messages.compiled_at system_messages.created_at tools.created_at
        tools.updated_at graphs.created_at graphs.updated_at entities.created_at entities.updated_at facts.valid_at
        facts.invalid_at facts.created_at facts.expired_at episodes.occurred_at episodes.created_at
        episodes.extracted_at extractions.extracted_at fact_rules.created_at communities.updated_at
        groups.created_at groups.updated_at group_turns.lease_until group_turns.created_at group_turns.started_at
        group_turns.ended_at group_messages.created_at companion_passes.created_at companion_passes.ended_at
        snapshots.created_at
        proposals.created_at proposals.decided_at skills.archived_at skills.fresh_at skills.created_at
        skills.changed_at skill_versions.created_at skill_uses.used_at openai_histories.created_at
        schedules.next_at schedules.created_at schedules.updated_at schedule_firings.due_at schedule_firings.fired_at
        memory_sources.created_at manifest_things.applied_at manifest_things.removed_at
        organisations.deleted_at users.created_at api_keys.created_at api_keys.expires_at api_keys.last_used_at
        api_keys.revoked_at audit_entries.created_at used.period
    """,
    "words of a fixed list": """
        agents.agent_type agent_revisions.agent_type snapshots.reason
        block_versions.author_kind correction_items.kind corrections.kind counters.name events.type
        files.media_type files.kind files.status identities.identity_type mcp_servers.transport
        message_revisions.author_kind messages.role messages.kind prefixes.reason rebuilding.name resets.author_kind
        runs.status runs.stop_reason schema_migrations.name steps.status steps.stop_reason steps.feedback
        summary_nodes.made_by summary_nodes.method commit_marks.slot commit_marks.token
        tools.tool_type vector_scopes.owner_kind facts.state facts.change facts.trust
        companion_passes.cause companion_passes.outcome
        groups.kind group_turns.status group_turns.stop_reason group_messages.kind
        episodes.kind episodes.trust passages.state schedules.action schedules.made_by schedules.status
        schedule_firings.outcome proposals.kind proposals.state skills.layer skill_versions.evidence
        message_sources.label message_sources.via
        memory_sources.kind memory_sources.label
        api_keys.scope audit_entries.action manifest_things.kind
    """,
    "numbers, ids and digests as JSON": """
        helpers.digest imported.digest manifest_things.fields openai_histories.digest openai_histories.system_digest
        archives.embedding conversations.seen conversations.stubs erasures.after erasures.counts file_pages.starts
        prefixes.seen prefixes.parts prefixes.nodes prefixes.pinned prefixes.client_tools prefixes.marker runs.usage
        runs.client_tools steps.usage summary_nodes.children summary_nodes.usage system_messages.blocks
        turns.turns batches.digest client_tools.digest embedding_cache.hash files.digest files.object_key
        idempotency_keys.digest deleted_places.digest deleted_places.org_id deleted_places.place
        group_turns.usage group_turns.digest
        memory_sources.message_ids passages.state_origin schedules.timing schedules.form
        api_keys.start api_keys.digest api_keys.limits proposals.change_digest
    """,
    "made from a text, and follows it": """
        archive_tags.tag passage_tags.tag embedding_cache.vector passages.embedding vectors.vector turns.names
        embedding_cache.words vectors.words
        message_words.label message_words.words passage_words.label passage_words.words entity_names.name
    """,
    "an error of this text's embedding, which goes with the text's place in the queue": "embedding_queue.failure",
    "commits of memories, which are dropped whole when a text is erased from them": """
        memory_packs.pack memory_packs.pack_index memory_histories.entries
    """,
    "hashes, by which commits and forgotten texts are told apart": """
        memory_histories.head memory_histories.forgotten memory_commits.hash
    """,
    "the text that is being erased, emptied when it is done": "erasures.text",
    "bytes of files: nothing is erased before they are read and removed": "file_uploads.bytes",
    "programs and settings of an organisation, which are no memory: change or delete them": """
        mcp_servers.name mcp_servers.config mcp_servers.failure mcp_servers.left_out mcp_tools.name
        mcp_tools.local_name mcp_tools.pinned mcp_tools.seen providers.name providers.provider_type providers.base_url
        providers.region providers.api_version sandbox_configs.settings sandbox_variables.name
        sandbox_variables.description tools.name tools.spec tools.tags tools.metadata tools.code
    """,
    "secrets": "mcp_servers.sealed providers.sealed sandbox_variables.sealed secrets.name secrets.value",
}
"""Reason -> `table.column` of each column that erasing passes over."""


def columns_of(db: Any) -> set[str]:
    """`table.column` of each column that can hold a text or bytes."""
    if db.clustered == "WITHOUT ROWID":
        virtual = [row[0] for row in db.rows("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'", {})]
        rows = db.rows(
            "SELECT t.name, c.name, c.type FROM sqlite_master t JOIN pragma_table_info(t.name) c"
            " WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%'",
            {},
        )
        rows = [row for row in rows if not any(row[0].startswith(f"{name}_") for name in virtual)]
    else:
        rows = db.rows(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name NOT LIKE '%at_first'"  # of the tests
            " AND NOT EXISTS (SELECT 1 FROM pg_class p WHERE p.relname = table_name AND p.relispartition)",
            {},
        )
    return {f"{table}.{name}" for table, name, type_ in rows if not any(one in type_.upper() for one in NUMBER_TYPES)}
