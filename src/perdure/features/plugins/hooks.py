"""Hooks of plug-ins: commands written for the events of Claude Code, called at the points of the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.hooks import GO_ON, AfterTool, BeforeTool, Hook, HookInfo, HookPayload, RunEnd, RunStart, Verdict
from perdure.core.text.json_strings import compact_json
from perdure.features.plugins.installed import active_plugins
from perdure.features.plugins.manifest import POINT_OF_EVENT, PluginHook
from perdure.features.plugins.tool_names import names_elsewhere
from perdure.settings import Settings
from perdure.toolbox.hook_commands import BLOCK_EXIT_CODE, PASSED_VARIABLES, CommandFailed, parse_answer, run_command

MATCH_S = 0.05
"""How long a matcher may take; one that takes longer matches, since the hook may be there to forbid something."""

_WITH_TEXT = ("conversation_start", "run_start")
"""The points at which what a command prints is context."""


def plugin_hooks(settings: Settings) -> Sequence[Hook]:
    """Return the hooks of plug-ins in use, by name. Raises: InvalidInput: records or policy can't be read."""
    return [
        _CommandOfPlugin(settings, plugin.name, plugin.folder, hook)
        for plugin in active_plugins(settings)
        for hook in plugin.record.hooks
    ]


class _CommandOfPlugin:
    """`Hook` that runs a command of a plug-in, as long as that is in use."""

    def __init__(self, settings: Settings, name: str, folder: Path, hook: PluginHook) -> None:
        self._settings, self._name, self._folder, self._hook = settings, name, folder, hook
        self.info = HookInfo(
            name=f"{name}:{hook.event}",
            points=frozenset({POINT_OF_EVENT[hook.event]}),
            source=f"plug-in {name}",
            timeout_s=hook.timeout_s,
        )

    async def __call__(self, payload: HookPayload) -> Verdict:
        """Run the command with the event as JSON in its input; return its verdict. Raises: CommandFailed, OSError."""
        if not self._matches(payload):
            return GO_ON
        try:
            if all(plugin.folder != self._folder for plugin in active_plugins(self._settings)):
                return GO_ON
        except InvalidInput as error:  # a guard does not go away because a file is broken
            return Verdict(block=str(error))
        environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        environment |= {"CLAUDE_PLUGIN_ROOT": str(self._folder), "PERDURE_HOOK": self.info.name}
        data = compact_json(_event(self._hook.event, payload, self._folder, self._name)).encode() + b"\n"
        # Commands seldom quote the variable with the folder: with spaces in it, the shell must not split it there.
        command = f"IFS='\n'\n{self._hook.command}" if " " in str(self._folder) else self._hook.command
        code, out, err = await run_command(command, data, folder=self._folder, environment=environment)
        if code == BLOCK_EXIT_CODE:
            return Verdict(block=err.strip() or "it gives no reason")
        answer = parse_answer(code, out, err)
        if not answer and payload.point in _WITH_TEXT:
            return Verdict(context=out.strip() or None)
        return _verdict(answer)

    def _matches(self, payload: HookPayload) -> bool:
        """Whether the hook is for the tool of a payload; other payloads have none."""
        matcher = self._hook.matcher
        if matcher in ("", "*") or not isinstance(payload, BeforeTool | AfterTool):
            return True
        import regex

        names = names_elsewhere(payload.tool, self._name)
        try:
            return any(regex.fullmatch(matcher, name, timeout=MATCH_S) for name in names)
        except TimeoutError:
            return True


def _event(event: str, payload: HookPayload, folder: Path, plugin: str) -> dict[str, Any]:
    """Return the JSON that Claude Code gives a hook for this event, with our own names of agent and tool added."""
    shape: dict[str, Any] = {
        "session_id": payload.conversation_id,
        "transcript_path": "",
        "cwd": str(folder),
        "permission_mode": "default",
        "hook_event_name": event,
        "agent_id": payload.agent_id,
        "run_id": payload.run_id,
    }
    if isinstance(payload, BeforeTool | AfterTool):
        name = names_elsewhere(payload.tool, plugin)[-1]
        shape |= {"tool_name": name, "tool": payload.tool, "tool_input": dict(payload.arguments)}
        shape |= {"tool_use_id": payload.call_id}
    match payload:
        case AfterTool():
            shape["tool_response"] = {"success": payload.status == "success", "output": payload.result}
        case RunStart():
            shape["prompt"] = "\n\n".join(message.text for message in payload.messages if message.role == "user")
        case RunEnd():
            shape |= {"stop_hook_active": False, "stop_reason": payload.stop_reason}
    shape |= {"SessionStart": {"source": "startup"}, "SessionEnd": {"reason": "other"}}.get(event, {})
    return shape | ({"trigger": "auto"} if event.endswith("Compact") else {})


def _verdict(answer: Mapping[str, Any]) -> Verdict:
    """The verdict in a command's answer. Raises: CommandFailed: it has something else than texts there."""
    specific = answer.get("hookSpecificOutput") or {}
    if not isinstance(specific, Mapping):
        raise CommandFailed("hookSpecificOutput in its answer is not an object")
    reasons = {
        "reason": answer.get("decision") == "block",
        "stopReason": answer.get("continue") is False,
        "permissionDecisionReason": specific.get("permissionDecision") in ("deny", "ask"),
    }
    texts = {**specific, **answer}
    given = [texts.get(name) for name in (*reasons, "additionalContext")]
    if not all(text is None or isinstance(text, str) for text in given):
        raise CommandFailed("its answer has a reason or context that is not text")
    block = next((texts.get(name) or "it gives no reason" for name, blocks in reasons.items() if blocks), None)
    return Verdict(block=block, context=texts.get("additionalContext") or None)
