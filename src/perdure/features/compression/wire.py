"""The setting `tool_output` in requests."""

from perdure.features.compression.pipeline import Level
from perdure.server.wire.fields import ItemsByName

Levels = Level | ItemsByName[Level]
"""How what tools return is compressed: of all, or by the names of tools."""
