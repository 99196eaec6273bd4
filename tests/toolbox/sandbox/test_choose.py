"""The sandbox of a process, by its settings."""

from __future__ import annotations

import pytest

from perdure.core.errors import InvalidInput, SandboxUnavailable
from perdure.core.tools.sandbox import SandboxJob
from perdure.settings import Settings
from perdure.toolbox.sandbox import choose
from perdure.toolbox.sandbox.choose import NoSandbox, open_sandbox


async def test_a_sandbox_that_is_off_refuses_all_code() -> None:
    """And says who turned it off."""
    sandbox = open_sandbox("off", cache=None, network=True, concurrency=1, memory_mb=1, processes=1)

    with pytest.raises(SandboxUnavailable, match="PERDURE_SANDBOX is off"):
        await sandbox.run(SandboxJob(source="1"))
    isolation = await sandbox.isolation()
    await sandbox.close()

    assert (isolation.enough, isolation.backend) == (False, "none")


def test_elsewhere_than_on_linux_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if it is asked for without isolation."""
    monkeypatch.setattr(choose.sys, "platform", "darwin")  # type: ignore[attr-defined]  # the module's own import

    sandbox = open_sandbox("unsafe", cache=None, network=False, concurrency=1, memory_mb=1, processes=1)

    assert isinstance(sandbox, NoSandbox)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SANDBOX", "yes"), ("SANDBOX_NETWORK", "true"), ("SANDBOX_MEMORY_MB", "-1"), ("SANDBOX_CONCURRENCY", "many")],
)
def test_settings_that_cannot_be_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"PERDURE_{name} is '{value}'"):
        Settings.from_environment({f"PERDURE_{name}": value})


def test_settings_of_the_sandbox_are_read() -> None:
    settings = Settings.from_environment({"PERDURE_SANDBOX": "unsafe", "PERDURE_SANDBOX_NETWORK": "on"})

    assert (settings.sandbox, settings.sandbox_network) == ("unsafe", "on")
