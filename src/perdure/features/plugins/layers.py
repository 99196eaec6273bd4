"""The six layers of definitions: where each has its folders, and which definition of a name counts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.features import Feature, find_features
from perdure.core.text.forms import match_form
from perdure.features.plugins.definitions import Definition, DefinitionKind, DefinitionProblem, Definitions
from perdure.features.plugins.installed import active_plugins
from perdure.features.plugins.places import FileInvalid
from perdure.features.plugins.policy import load_policy, policy_folder
from perdure.features.plugins.projects import project_of as project_of
from perdure.features.plugins.reading import DefinitionSource, read_flags, read_source
from perdure.scratch import user_path
from perdure.settings import Settings
from perdure.storage.tx import Tx

PROJECT_FOLDERS = (".perdure", ".claude")
"""The folders of a project that hold definitions; where both have one of a name, the first one's counts."""


def find_definitions(
    kind: DefinitionKind, settings: Settings, project: Path | None, *, features: Sequence[Feature] | None = None
) -> Definitions:
    """Return the helpers, commands or skills of all six layers; `project` is the folder of an agent's project, and
    `features` are those whose built-in definitions there are: the installed ones, unless others are given.

    Only files that changed are read, so a call takes less than a millisecond when none did. Names are compared without
    letter case. Within a layer the first definition of a name counts. A file of the policy that can't be used still
    takes its name from the others. Raises: InvalidInput: the policy can't be read; see `load_policy`.
    """
    policy = load_policy(settings)
    counting: dict[str, Definition] = {}
    shadowed: list[Definition] = []
    denied: list[Definition] = []
    problems: list[DefinitionProblem] = []
    broken: dict[str, DefinitionProblem] = {}
    folder = None if (root := policy_folder(settings)) is None else root / kind
    for found in _read_layers(kind, settings, project, find_features() if features is None else features):
        if isinstance(found, DefinitionProblem):
            problems.append(found)
            if folder is not None and found.path.is_relative_to(folder):
                if not found.names:
                    raise FileInvalid(found.path, found.line, found.why)
                broken |= {match_form(name): found for name in found.names}
            continue
        if not policy.allows(kind, found.name):
            denied.append(found)
            continue
        before = counting.get(key := match_form(found.name))
        if before is not None and before.layer == found.layer:
            shadowed.append(found)
            continue
        if before is not None:
            shadowed.append(before)
        counting[key] = found
    broken = {key: one for key, one in broken.items() if key not in counting or counting[key].layer != "policy"}
    shadowed += [counting.pop(key) for key in broken if key in counting]
    by_name = {one.name: one for one in counting.values()}
    return Definitions(
        by_name=dict(sorted(by_name.items())),
        shadowed=shadowed,
        denied=denied,
        problems=problems,
        broken=broken,
        taken={*counting, *broken},
    )


def no_definitions(error: InvalidInput, settings: Settings) -> Definitions:
    """Return what there is while the policy can't be read: nothing, and why."""
    path, line, why = settings.policy, 0, str(error)
    if isinstance(error, FileInvalid):
        path, line, why = error.path, error.line, error.why
    return Definitions(problems=[DefinitionProblem(path=Path(path), line=line, why=why)])


def _read_layers(
    kind: DefinitionKind, settings: Settings, project: Path | None, features: Sequence[Feature]
) -> Iterator[Definition | DefinitionProblem]:
    """What the layers have, from the first to the last."""
    for feature in features:
        yield from read_source(DefinitionSource(kind, "built-in", feature.folder / "builtin" / kind))
    for source in _sources_of_user(kind, settings, project):
        yield from read_source(source)
    if kind == "agents":
        yield from read_flags(settings.helpers)
    for root in _folders(settings.definitions_flags):
        yield from read_source(DefinitionSource(kind, "flags", root / kind))
    if (folder := policy_folder(settings)) is not None:
        yield from read_source(DefinitionSource(kind, "policy", folder / kind))


def _sources_of_user(kind: DefinitionKind, settings: Settings, project: Path | None) -> Iterator[DefinitionSource]:
    """The folders of the layers from `plug-in` to `project`."""
    for plugin in active_plugins(settings):
        for root in plugin.roots(kind):
            yield DefinitionSource(kind, "plug-in", root, plugin.name)
    for folder in (settings.folder, *_folders(settings.definitions)):
        yield DefinitionSource(kind, "user", folder / kind)
    if project is not None:
        for name in PROJECT_FOLDERS:
            yield DefinitionSource(kind, "project", project / name / kind, within=project)


def _folders(setting: str) -> Sequence[Path]:
    """The folders in a setting, which are separated as in `PATH`."""
    texts = [one for text in setting.split(os.pathsep) if (one := text.strip())]
    return [user_path(one) for one in texts]


def settings_of(tx: Tx) -> Settings:
    """Return the settings of the program that opened the store; a store without a program has the defaults."""
    return tx.limits if isinstance(tx.limits, Settings) else Settings()
