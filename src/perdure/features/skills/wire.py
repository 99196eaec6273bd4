"""Skills on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Literal

from perdure.features.skills.values import DESCRIPTION_CHARS, SkillChange, SkillView
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.shapes import WireShape, computed


class SkillIn(WireRequest):
    """A skill to write, or its next version."""

    text: Annotated[str, keywords(pattern=FILLED, maxLength=30_000)]
    layer: Literal["L2", "L3"] = "L3"
    description: Annotated[str, keywords(maxLength=DESCRIPTION_CHARS)] = ""


class SkillRestoreIn(WireRequest):
    """Which version is to be brought back; without one the skill as it is."""

    version: Annotated[int, keywords(minimum=1)] | None = None


class SkillProtectIn(WireRequest):
    """Whether only people change a skill."""

    protected: bool = True


_FIELDS = "name layer description version is_protected archived_at changed_at path uses.uses uses.successes"


class SkillShape(WireShape, of=SkillView, fields=_FIELDS, last_used_at="uses.last_at"):
    """A skill as lists show it: `uses` are the runs that read it, `successes` those of them that came to their end."""


class SkillPageShape(WireShape, of=SkillView, fields=f"{_FIELDS} text", last_used_at="uses.last_at"):
    """A skill with its instructions, and the names of its other files."""

    files: list[str] = computed(lambda skill: list(skill.files))


_VERSION = "version description text diff written_by run_id evidence evidence_id created_at"


class SkillVersionShape(WireShape, of=SkillChange, fields=_VERSION):
    """A version of a skill; `diff` is unified, from the text of the version before. `evidence_id`: the message with the
    tool's result, or of the user, that confirmed it."""


class SkillProblems(WireShape):
    """Why files define no skill, each with its path and line."""

    problems: list[str]
