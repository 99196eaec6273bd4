"""The sandbox's configuration, and the variables of all tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StrictBool

from perdure.core import secrets
from perdure.library.parts.checks import Page
from perdure.server.wire.base import MASKED, WireRequest
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.fields import Items, JsonObject, Name, SandboxIdIn, VariableIdIn
from perdure.server.wire.http import Library, Limit, Router, pages
from perdure.server.wire.shapes import Object, StampedShape, computed

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
        """The settings to store. Raises: NotSupported: a hosted sandbox, or requirements, which tools have here."""
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

    key: Name
    value: str
    description: str | None = None


class VariableChangesIn(WireRequest):
    """Changes of a variable. A field that is missing or null stays, and so does the value if it is empty."""

    key: Name | None = None
    value: str | None = None
    description: str | None = None


_DEFAULTS = {"sandbox_dir": None, "use_venv": False, "venv_name": "venv"}


class WireSandboxConfig(StampedShape, of=secrets.SandboxConfig, fields="id"):
    """The configuration of the sandbox."""

    type: Literal["local"] = "local"
    config: Object = computed(lambda config: {**_DEFAULTS, **config.settings, "pip_requirements": []})


class WireVariable(
    StampedShape,
    of=secrets.Variable,
    fields="id description",
    key="name",
    sandbox_config_id="config_id",
    unlisted={"value_enc": None},
):
    """A variable of all custom tools. No answer has its value."""

    value: str = MASKED


router = Router(tags=["sandbox"])


@router.post("/v1/sandbox-config/")
async def create(body: SandboxIn, library: Library) -> WireSandboxConfig:
    """Create the configuration of the local sandbox, or change it: there is one."""
    return WireSandboxConfig.make(await library.sandbox.put(body.config.settings()))


@router.get("/v1/sandbox-config/")
async def list_configs(
    library: Library,
    limit: Limit = None,
    after: str | None = None,
    sandbox_type: Literal["local", "e2b", "modal"] | None = None,
) -> list[WireSandboxConfig]:
    """List the configuration, if there is one."""
    config = await library.sandbox.find()
    is_listed = config is not None and after is None and sandbox_type in (None, "local")
    return [WireSandboxConfig.make(config)] if config is not None and is_listed else []


@router.post("/v1/sandbox-config/local/recreate-venv")
@router.post("/v1/sandbox-config/local/default")
async def create_default(library: Library) -> WireSandboxConfig:
    """Get the configuration, which is created if there is none. Each call of a tool has a new sandbox anyway."""
    return WireSandboxConfig.make(await library.sandbox.put(None))


@router.post("/v1/sandbox-config/local")
async def create_local(body: LocalConfig, library: Library) -> WireSandboxConfig:
    """Create the configuration of the local sandbox, or change it."""
    return WireSandboxConfig.make(await library.sandbox.put(body.settings()))


@router.post("/v1/sandbox-config/e2b/default")
async def create_hosted() -> WireSandboxConfig:
    """Refuse: tools run on this machine only."""
    raise NotSupported(HOSTED)


@router.patch("/v1/sandbox-config/{sandbox_config_id}")
async def update(sandbox_config_id: SandboxIdIn, body: SandboxIn, library: Library) -> WireSandboxConfig:
    """Replace the settings of the configuration."""
    return WireSandboxConfig.make(await library.sandbox.put(body.config.settings(), sandbox_config_id))


@router.delete("/v1/sandbox-config/{sandbox_config_id}", status_code=204)
async def delete(sandbox_config_id: SandboxIdIn, library: Library) -> None:
    """Delete the configuration with its variables."""
    await library.sandbox.delete(sandbox_config_id)


# --- variables


@router.post("/v1/sandbox-config/{sandbox_config_id}/environment-variable")
async def create_variable(sandbox_config_id: SandboxIdIn, body: VariableIn, library: Library) -> WireVariable:
    """Give all custom tools a variable. It is encrypted, and no answer shows its value."""
    variable = await library.sandbox.add_variable(sandbox_config_id, body.key, body.value, body.description)
    return WireVariable.make(variable)


@router.get("/v1/sandbox-config/{sandbox_config_id}/environment-variable")
async def list_variables(
    sandbox_config_id: SandboxIdIn, library: Library, page: Annotated[Page, pages("variable", limit=1_000, order="asc")]
) -> list[WireVariable]:
    """List the variables, oldest first by default; every value is empty."""
    return [WireVariable.make(variable) for variable in await library.sandbox.list_variables(sandbox_config_id, page)]


@router.patch("/v1/sandbox-config/environment-variable/{env_var_id}")
async def update_variable(env_var_id: VariableIdIn, body: VariableChangesIn, library: Library) -> WireVariable:
    """Change the fields that are set; an empty value stays as it is."""
    return WireVariable.make(await library.sandbox.update_variable(env_var_id, body.key, body.value, body.description))


@router.delete("/v1/sandbox-config/environment-variable/{env_var_id}", status_code=204)
async def delete_variable(env_var_id: VariableIdIn, library: Library) -> None:
    """Take a variable from all tools."""
    await library.sandbox.delete_variable(env_var_id)
