"""What a capability plugs into the kernel: each is a folder of `perdure.features`, whose `feature.py` has a `FEATURE`.

The kernel imports none of them, and works without. What a feature names is a text, and is imported when it is used.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """The commands `perdure NOUN VERB` of one noun, in these modules. `help`: what its help says; empty: the kernel or
    another feature declares the noun, and these verbs are added. `default`: the verb that runs where none is given;
    empty: the help is shown."""

    modules: Sequence[str]
    help: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetting:
    """A setting that agents may have.

    Args:
        check: reference of the function that is called with the settings of an agent that has it; raises InvalidInput.
        shape: reference of the type of its values in requests.
        keeps_empty: whether an empty object is stored as a value; else it removes the setting.
        keeps_false: whether false is stored as a value; else it removes the setting.
        stays: whether copies of an agent lack it, for what it names belongs to this machine.
        of_companions: the value for companions, agents that tidy the memory of others; None: they get none.
    """

    check: str
    shape: str
    keeps_empty: bool = False
    keeps_false: bool = False
    stays: bool = False
    of_companions: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A model that Perdure offers without a provider. `model`: reference of its class; `about`: the text that tells
    users about it where there is no other model."""

    model: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """What the store has to know of a table whose rows are an agent's, by its column `agent_id`.

    Args:
        key: the columns of its primary key beside `agent_id`.
        has_callback: whether it has a column `callback`, with secrets that may be encrypted anew.
        at_once: the condition of rows that go with the agent itself, as others would see it through them.
        spread_key: the primary key that it needs where rows lie on several nodes: the agent, and what finds a row.
        queues: name of a queue -> the condition of the rows `t` that wait in it `:at` a time.
    """

    name: str
    key: Sequence[str]
    has_callback: bool = False
    at_once: str = ""
    spread_key: Sequence[str] = ()
    queues: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgTable:
    """What the store knows of a table with an organisation's rows; on several nodes, each has the whole table.

    Args:
        of: (column, other table of an organisation to whose rows it points); None: it has a column `org_id`.
        sealed: its column of encrypted values, as base64.
        names_tools: whether a row says, as `name`, how the tool `tool_id` is called where the tool comes from.
        why: why there are so few rows that each node can have them; or, with `is_local`, why the first node has them.
        is_own: whether its feature deletes its rows itself, when nothing else of the organisation is left.
        family: where its rows are spread over nodes by the column in `of`: the first of the tables whose rows lie on
            the same node; empty: each node has all rows.
        queues: as those of a `TableUse`.
    """

    name: str
    of: tuple[str, str] | None = None
    sealed: str = ""
    names_tools: bool = False
    why: str = "few"
    is_local: bool = False
    is_own: bool = False
    family: str = ""
    queues: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveUse:
    """Archives of a table's rows, such as those with files' passages: only these change them, and end with them.

    Args:
        columns: the columns of the table with the ids of archives.
        holds: what is in the archives, in words.
        help: what helps whoever wants to change one; empty: what each caller says.
        kind: what a row of the table is, in words.
    """

    table: str
    columns: Sequence[str]
    holds: str
    kind: str
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootUse:
    """What the store has to know of a table `name` of things of organisations, with `id`, `org_id` and `number`.

    Args:
        key: the column with the thing's id in the tables of `parts` and `of_agents`.
        parts: table of its parts -> the other columns of their key.
        links: table of other things -> table that links parts to them -> (column of the other's id, rest of the key).
        of_agents: tables whose rows are deleted at once with the agent in their column `agent_id`.
        owner: its column with the agent with which it is deleted; empty: none.
        ends_with_agents: whether it is deleted with the last agent in the first table of `of_agents`.
        with_ids: the tables among `parts` whose rows have an `id` in the directory of ids.
        has_sources: whether the sources of what is written to it are kept.
        ends: the SQL statement that runs when the thing `:id` is deleted; empty: none.
        unique: its column whose values are unique in an organisation; empty: none.
        is_in_prompts: whether an agent that loses one needs a new prefix.
        reference: why each node has all of its rows, where rows lie on several; empty: they lie as their ids say.
    """

    name: str
    key: str
    parts: Mapping[str, str]
    links: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    of_agents: Sequence[str] = ()
    owner: str = ""
    ends_with_agents: bool = False
    with_ids: Sequence[str] = ()
    has_sources: bool = False
    ends: str = ""
    unique: str = ""
    is_in_prompts: bool = False
    reference: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextUse:
    """What forgetting has to know of a table with texts of users, models and tools.

    Args:
        place: what forgetting calls its texts: a key of `PLACE_NAMES`, or a new word, for people the name of the table.
        owners: the table of the things that have them, as `text_owners` or the kernel finds them.
        owner: the column with the id of the owner; or the SQL condition of the rows that belong to the id `:owner`.
        key: the columns of its key beside the owner, in order.
        texts: the columns with the texts.
        is_wide: whether a row may be as large as a whole request to a model.
    """

    name: str
    place: str
    owners: str = "agents"
    owner: str = "agent_id"
    key: Sequence[str] = ()
    texts: Sequence[str]
    is_wide: bool = False

    @property
    def of_owner(self) -> str:
        """The SQL condition of the rows that belong to the owner with the id `:owner`."""
        return self.owner if " " in self.owner else f"{self.owner} = :owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One capability. A reference names a module of its folder, or an object in one: `routes`, `pages:SECTION`.

    Args:
        name: the name of its folder.
        nouns: noun of the command line -> its commands.
        verbs: name of a command without a noun, `perdure VERB` -> its module and help.
        quick_nouns: noun -> the function that takes the verb and its arguments and returns the exit code; None:
            the verb is none of its own. Other programs run these while a person waits, so neither the command line nor
            the store is loaded; no help lists them.
        routes: modules with a `router` of the HTTP API.
        tabs: name of a tab of an agent's pages -> the page below the agent's.
        slashes: usage of a command of the chat, such as `/facts [TEXT]` -> its function.
        sections: page of the dashboard -> the `Section` that is added to it.
        tools: a module whose functions with names in `tools.toml` are memory tools. That file of the folder describes
            all its tools, as `core/tools/engine_tools.toml` does.
        toolboxes: kind of tool -> function of the `App` that makes the `FeatureToolbox` for it; see `perdure.app`.
        agent_settings: name -> a setting that agents may have. The folder's `settings.toml` says how forms show it.
        models: function of the settings that makes the models which this process serves itself.
        built_in: handle -> a model that Perdure offers without a provider.
        uses: the features that it imports; it is left out where one of them is missing.
        pages: modules with `pages` of the dashboard; those with a `link` stand in its head.
        own_settings: names of agents' settings that only the feature changes; copies of an agent lack them.
        parts: attribute of every agent and of the store -> its class, an `AsyncPart`.
        agent_parts: as `parts`, for agents only; `MODULE:CLASS.METHOD` is a method of theirs.
        store_parts: as `parts`, for the store only.
        has: name in `ConversationState.has` -> SQL expression, not null and not false for an agent `a` with the id
            `{agent}` that has such a thing. It is read with the agent, so that nothing is called for others.
        services: classes of what runs beside the runner; see `Service` of `perdure.app`.
        tables: tables with rows of agents, so that they can be deleted and forgotten; inner rows first. The folder's
            `migrations` make them.
        org_tables: tables with rows of organisations; inner rows first.
        roots: tables of things that belong to no single agent.
        text_tables: its tables with texts.
        text_owners: table of things with texts -> (SQL for the ids of those that agent `:agent_id` has, SQL for the
            ids of the agents that have `:id`).
        one_form: `TABLE COLUMN` of names that migration 86 brings into one form -> (columns of the key, SQL condition
            under which two rows, `o` and `t`, may not have the same name; empty: they always may).
        counts: what is counted for an archive -> (table, column of the count, SQL condition of its row, SQL that
            counts again).
        archives: archives that belong to its things.
        copies: reference of the `CopyPart` for agent files.
        texts: reference of the `TextKeeper` for its texts.
        points: name of a `Point` of the kernel -> the function that is called there.
    """

    name: str
    uses: Sequence[str] = ()
    nouns: Mapping[str, Noun] = field(default_factory=dict)
    verbs: Mapping[str, Noun] = field(default_factory=dict)
    quick_nouns: Mapping[str, str] = field(default_factory=dict)
    routes: Sequence[str] = ()
    pages: Sequence[str] = ()
    tabs: Mapping[str, str] = field(default_factory=dict)
    slashes: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    tools: str = ""
    toolboxes: Mapping[str, str] = field(default_factory=dict)
    agent_settings: Mapping[str, AgentSetting] = field(default_factory=dict)
    models: str = ""
    built_in: Mapping[str, BuiltIn] = field(default_factory=dict)
    own_settings: Sequence[str] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    agent_parts: Mapping[str, str] = field(default_factory=dict)
    store_parts: Mapping[str, str] = field(default_factory=dict)
    has: Mapping[str, str] = field(default_factory=dict)
    services: Sequence[str] = ()
    tables: Sequence[TableUse] = ()
    org_tables: Sequence[OrgTable] = ()
    roots: Sequence[RootUse] = ()
    text_tables: Sequence[TextUse] = ()
    text_owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    one_form: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    counts: Mapping[str, tuple[str, str, str, str]] = field(default_factory=dict)
    archives: Sequence[ArchiveUse] = ()
    copies: str = ""
    texts: str = ""
    points: Mapping[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The name of its Python package."""
        return f"perdure.features.{self.name}"

    @property
    def tool_file(self) -> Path:
        """The file that describes its tools."""
        return self.folder / "tools.toml"

    @property
    def folder(self) -> Path:
        """Its folder."""
        return _FOLDER / self.name

    def load(self, reference: str) -> Any:
        """Import and return what `reference` names in this package: `MODULE`, or the object `NAME` of `MODULE:NAME`."""
        module, _, name = reference.partition(":")
        found = import_module(f"{self.package}.{module}")
        return getattr(found, name) if name else found


_FOLDER = Path(__file__).parents[1] / "features"


@functools.cache
def find_features() -> Sequence[Feature]:
    """Return the installed features, each behind those in its `uses`, else by name.

    A feature is left out where one that it uses is missing.
    """
    names = sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg)
    waiting: list[Feature] = [import_module(f"perdure.features.{name}.feature").FEATURE for name in names]
    found: dict[str, Feature] = {}
    while ready := [feature for feature in waiting if found.keys() >= {*feature.uses}]:
        found[ready[0].name] = ready[0]
        waiting.remove(ready[0])
    return [*found.values()]


@functools.cache
def feature_settings() -> Mapping[str, tuple[Feature, AgentSetting]]:
    """The settings of agents by their names, each with its feature."""
    return {name: (feature, one) for feature in find_features() for name, one in feature.agent_settings.items()}


@functools.cache
def feature_models() -> Mapping[str, tuple[Feature, BuiltIn]]:
    """The models that are there without a provider, by their handles, each with its feature."""
    return {handle: (feature, model) for feature in find_features() for handle, model in feature.built_in.items()}


def feature_tables() -> Sequence[TableUse]:
    """The `tables` of all features."""
    return [table for feature in find_features() for table in feature.tables]


def feature_org_tables() -> Sequence[OrgTable]:
    """The `org_tables` of all features."""
    return [table for feature in find_features() for table in feature.org_tables]


def feature_roots() -> Sequence[RootUse]:
    """The `roots` of all features."""
    return [root for feature in find_features() for root in feature.roots]


def archive_columns(table: str) -> Sequence[str]:
    """The columns of a table with the ids of archives that belong to its rows."""
    return [column for one in find_features() for use in one.archives if use.table == table for column in use.columns]


P = ParamSpec("P")
T = TypeVar("T")


class Point(Generic[P, T]):
    """A place in the kernel at which features act: calls the functions that features give for its `name` in
    `Feature.points`, in the order of `find_features`. `P`: their parameters; `T`: what each returns."""

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def functions(self) -> Sequence[Callable[P, T]]:
        """The functions that features give for this point."""
        return [feature.load(feature.points[self.name]) for feature in find_features() if self.name in feature.points]

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> list[T]:
        """Call each function of the point with these arguments, and return their results in order."""
        return [function(*arguments, **named) for function in self.functions]
