"""Memory as a git repository: blocks, notes and skills as Markdown, each change a commit; pushes become versions."""

from perdure.core.features import Feature, Noun, TableUse, TextUse

FEATURE = Feature(
    name="memory_git",
    uses=("notes", "plugins", "skills"),
    nouns={"memory": Noun(modules=("commands",))},
    routes=("routes",),
    agent_parts={"memory_git": "service:AsyncMemoryGit"},
    tables=(
        TableUse(name="memory_packs", key=("seq",)),
        TableUse(name="memory_commits", key=("thing", "version")),
        TableUse(name="memory_files", key=("number",)),
        TableUse(name="memory_histories", key=("generation",)),
    ),
    text_tables=(
        TextUse(name="memory_commits", place="block_version", key=("thing", "version"), texts=("reason",)),
        TextUse(name="memory_files", place="block_version", key=("number",), texts=("path", "text")),
    ),
    points={"erased": "tables:drop_history", "version_reasons": "tables:version_reasons"},
)
