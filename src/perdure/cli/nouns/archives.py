"""The verbs of `perdure archive`, `folder`, `file` and `store`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.run import AsJson, LastAgent, Yes, agent_option, verbs
from perdure.cli.run import old_command as command

archive, folder, file, store = (verbs() for _ in range(4))

ArchiveName = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Name or id of the archive.")]
FolderName = Annotated[str, typer.Argument(metavar="FOLDER", help="Name or id of the folder.")]


@command(archive, "archives.list_archives", name="list")
def list_archives(as_json: AsJson = False) -> None:
    """List the archives, and which agents have them."""


@command(archive, "archives.list_passages", name="show")
def list_passages(
    archive: Annotated[
        str | None, typer.Argument(metavar="[ARCHIVE]", help="Name or id of the archive; by default all of the agent.")
    ] = None,
    agent: Annotated[str | None, agent_option("Whose, by name or id; by default the agent used last.")] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="Only those that are `active`, `faded` or `archived`."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List passages with their states, newest first."""
    if agent is not None and archive is not None:
        raise typer.BadParameter("its passages are listed by themselves: leave --agent out", param_hint="ARCHIVE")


@command(archive, "archives.restore")
def restore(
    passages: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of passages, or their beginnings.")],
    as_json: AsJson = False,
) -> None:
    """Bring passages back that have faded or are archived."""


@command(archive, "archives.attach")
def attach(archive: ArchiveName, agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Let an agent search an archive."""


@command(archive, "archives.detach")
def detach(archive: ArchiveName, agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Take an archive from an agent."""


@command(archive, "archives.delete")
def delete(archive: ArchiveName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete an archive with its passages, for good."""


@command(archive, "transfer.export_archives", name="export")
def export_archives(
    names: Annotated[
        list[str],
        typer.Argument(metavar="[ARCHIVE] FILE", help="The archive, by name or id, and the file (- is stdout)."),
    ],
    every: Annotated[bool, typer.Option("--all", help="All archives, into one file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
) -> None:
    """Write an archive as lines of JSON."""
    if len(names) != 2 - every:
        raise typer.BadParameter("write `perdure archive export ARCHIVE FILE`, or `perdure archive export --all FILE`")


@command(archive, "transfer.import_archives", name="import")
def import_archives(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of `perdure archive export`; - is stdin.")],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="ARCHIVE", help="Put everything into this one; by default each into its own."),
    ] = None,
    agent: Annotated[str | None, agent_option("Let this agent search them.")] = None,
) -> None:
    """Read archives from lines of JSON. Passages that are there already are skipped."""


@command(folder, "folders.list_folders", name="list")
def list_folders() -> None:
    """List the folders of files."""


@command(folder, "folders.attach_folder", name="attach")
def attach_folder(folder: FolderName, agent: LastAgent = None) -> None:
    """Let an agent read a folder."""


@command(folder, "folders.detach_folder", name="detach")
def detach_folder(folder: FolderName, agent: LastAgent = None) -> None:
    """Take a folder from an agent."""


@command(folder, "folders.delete_folder", name="delete")
def delete_folder(folder: FolderName, yes: Yes = False) -> None:
    """Delete a folder with its files, for good."""


@command(file, "folders.upload")
def upload(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or whole directories.")],
    folder: Annotated[
        str | None,
        typer.Option("--folder", metavar="NAME", help="The folder; by default named as the directory."),
    ] = None,
    agent: Annotated[str | None, agent_option("Give the folder to this agent, by name or id.")] = None,
) -> None:
    """Add files to a folder that agents read. A file that is there with the same bytes stays as it is.

    Of directories, version control, packages of others and what is no text are left out.
    """


@command(file, "folders.list_files", name="list")
def list_files(
    name: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder; or an agent, for its open files.")],
) -> None:
    """List the files of a folder, and the progress of each."""


@command(file, "folders.delete_file", name="delete")
def delete_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Name or id of the file.")],
    folder: FolderName,
    yes: Yes = False,
) -> None:
    """Delete a file of a folder, for good."""


@command(store, "upkeep.verify")
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild indexes, vectors and counts that differ.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue with the rest of a store whose log is gone.")
    ] = False,
) -> None:
    """Look for damage, and compare the search indexes, vectors and counts with the stored texts.

    Exit code 1: something is damaged or differs, and was not repaired.
    """


@command(store, "upkeep.scrub")
def scrub() -> None:
    """Remove every trace of what was deleted from the indexes, the free space of the database and its log.

    The database is written anew, and others can't write meanwhile. Run it after deleting what nobody may find.
    """


@command(store, "upkeep.split")
def split(
    parts: Annotated[int, typer.Option("--parts", metavar="N", help="How many parts of each table: 2 to 256.")] = 16,
) -> None:
    """Split the tables of a store on PostgreSQL into hash partitions, by agent, block, archive or graph.

    Stop every process first. Each table is copied in a transaction of its own: stopped, the command goes on where it
    was. Only stores with hundreds of millions of rows gain from it.
    """


@command(store, "upkeep.reindex")
def reindex(
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="ARCHIVE", help="The passages of this archive, by name or id.")
    ] = None,
    agent: Annotated[str | None, agent_option("The messages of this agent, by name or id.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Embed also texts that have a vector.")] = False,
) -> None:
    """Embed texts that have no vector of the current embedder; by default all texts.

    It can be stopped and started again at any time; searches go on with what is there.
    """
