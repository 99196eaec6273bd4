"""The sandbox's configuration on the wire, and its variables."""

from __future__ import annotations

from typing import Any

from pydantic import StrictBool

from perdure.core.secrets import SandboxConfig, Variable
from perdure.server.errors import NotSupported
from perdure.server.wire.base import MASKED, WireRequest, fields, stamps
from perdure.server.wire.fields import Items, JsonObject

_OF_OTHERS = ("timeout", "template", "npm_requirements", "language")
"""Fields that only configurations of hosted sandboxes have."""

HOSTED = (
    "This server runs tools in a sandbox of this machine only, not at E2B or Modal. Leave the configuration out: custom"
    " tools are isolated without one."
)


class LocalConfig(WireRequest):
    """The configuration of a local sandbox. It is only stored and shown: each call of a tool has its own folder."""

    sandbox_dir: str | None = None
    use_venv: StrictBool | None = None
    venv_name: str | None = None
    pip_requirements: Items[JsonObject | str] | None = None
    timeout: int | None = None
    template: str | None = None
    npm_requirements: Items[JsonObject | str] | None = None
    language: str | None = None

    def settings(self) -> dict[str, Any]:
        """The settings to store. Raises: NotSupported: they are of a hosted sandbox, or have requirements, which belong
        to each tool here."""
        if self.non_null(*_OF_OTHERS):
            raise NotSupported(HOSTED)
        if self.pip_requirements:
            raise NotSupported(
                "pip_requirements: each tool has requirements of its own here. Send them as `pip_requirements` with"
                " POST or PATCH /v1/tools/."
            )
        return self.non_null("sandbox_dir", "use_venv", "venv_name")


class SandboxIn(WireRequest):
    """A configuration, by itself or as a change."""

    config: LocalConfig


class VariableIn(WireRequest):
    """A variable of all custom tools."""

    key: str
    value: str
    description: str | None = None


class VariableChangesIn(WireRequest):
    """Changes of a variable. A field that is missing or null stays, and so does the value if it is empty."""

    key: str | None = None
    value: str | None = None
    description: str | None = None


def sandbox_shape(config: SandboxConfig) -> dict[str, Any]:
    """The configuration with all fields of the wire."""
    settings = {"sandbox_dir": None, "use_venv": False, "venv_name": "venv", **config.settings, "pip_requirements": []}
    return {**stamps(config.created_at, config.updated_at), "id": config.id, "type": "local", "config": settings}


def variable_shape(variable: Variable) -> dict[str, Any]:
    """The variable with all fields of the wire, without its value."""
    return {
        **stamps(variable.created_at, variable.updated_at),
        **fields(variable, "id", key="name"),
        "value": MASKED,
        **fields(variable, "description", sandbox_config_id="config_id"),
        "value_enc": None,
    }
