"""What tools say no with, and what keeps one from being run. `core.errors` has the whole tree, import from there."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.errors.root import PerdureError


class ToolError(PerdureError):
    """What a tool tells the model. It becomes the call's error result; the run goes on."""


class InvalidArguments(ToolError):
    """A model called a tool with arguments that do not fit it."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"the arguments of {tool} were not usable: {problem}. The tool was not run.")
        self.tool, self.problem = tool, problem


class BlockLimitExceeded(ToolError):
    """An edit would make a block longer than its limit. The model sees it and may shorten the text."""

    def __init__(self, label: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"block {label!r} would hold {size:,} characters, its limit is {limit:,}."
            " Shorten the text, or remove what is outdated first."
        )
        self.label, self.size, self.limit = label, size, limit


class BlockReadOnly(ToolError):
    """A tool tried to edit a read-only block."""

    def __init__(self, label: str) -> None:
        super().__init__(f"This block is read-only and cannot be edited. Only people can change {label!r}.")
        self.label = label


class BlockChanged(ToolError):
    """A tool would rewrite a block that somebody else has changed since the model was shown it; nothing was written.

    Args:
        value: what the block holds now.
    """

    words = "was changed by somebody else since you were shown it"

    def __init__(self, label: str, value: str) -> None:
        super().__init__(
            f"block {label!r} {self.words}, so it was not rewritten. Merge your text into what it holds now, and call"
            f" the tool again. It now holds:\n{value}"
        )
        self.label, self.value = label, value


class TextNotFound(ToolError):
    """The text to replace is not in the block."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(
            f"No replacement was performed, old_string `{text[:200]}` did not appear verbatim in memory block with"
            f" label `{label}`. Copy the text exactly as it stands in the block, white space included."
        )
        self.label, self.text = label, text


class TextAmbiguous(ToolError):
    """The text to replace is in the block more than once."""

    def __init__(self, label: str, text: str, *, lines: Sequence[int]) -> None:
        super().__init__(
            f"No replacement was performed, old_string `{text[:200]}` appears {len(lines)} times in memory block with"
            f" label `{label}` (lines {', '.join(map(str, lines))})."
            " Add more of the surrounding text so that it is unique."
        )
        self.label, self.text, self.lines = label, text, tuple(lines)


class LineNumbersInText(ToolError):
    """A text for a block has the numbers that its lines are only shown with."""

    def __init__(self, argument: str) -> None:
        super().__init__(
            f"{argument} contains a line number prefix, which is not allowed: numbers only show where a line stands."
            " Give the text without them."
        )
        self.argument = argument


class PatchInvalid(ToolError):
    """A patch could not be read or does not fit the text; nothing of it was applied."""


class UntrustedWrite(ToolError):
    """An agent wanted to change its memory after content from outside entered its context, and its setting
    `untrusted_writes` does not let it."""

    def __init__(self, tool: str, sources: str, policy: str) -> None:
        helps = (
            "tell the user what you wanted to remember and why. A person can change the memory by hand, go on in a new"
            " conversation, or set untrusted_writes to 'approve'"
            if policy == "block"
            else "call it again by itself, and it will be asked for"
        )
        verb = "was blocked" if policy == "block" else "needs somebody's approval"
        super().__init__(
            f"memory was not changed: {tool} {verb}, because this conversation holds content from {sources}, and"
            f" untrusted_writes is {policy!r}. What to do: {helps}."
        )
        self.tool, self.sources, self.policy = tool, sources, policy


class CircularWait(ToolError):
    """An agent wants to wait for another one that waits for it: neither would ever go on."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"{agent_id} waits for your own answer, so it can't reply now: answer first, or write with"
            " send_message_to_agent_async"
        )
        self.agent_id = agent_id


class TooManyHops(ToolError):
    """Agents have passed a message on too often, one because of the other."""

    def __init__(self, hops: int) -> None:
        super().__init__(f"agents have passed this message on {hops} times, which is the limit: answer it yourself")
        self.hops = hops


class TooManyMessages(ToolError):
    """Too many messages between agents go back to one run."""

    def __init__(self, origin: str, most: int) -> None:
        super().__init__(
            f"{most:,} messages between agents have come of {origin}, which is the limit: answer without another one"
        )
        self.origin, self.most = origin, most


class NoReply(ToolError):
    """Another agent gives no reply to a message. The message is stored, and answered or not in the run `run_id`."""

    def __init__(self, agent_id: str, run_id: str, problem: str) -> None:
        super().__init__(f"{agent_id} {problem}")
        self.agent_id, self.run_id, self.problem = agent_id, run_id, problem


class ReplyTimeout(NoReply):
    """Another agent does not reply in time; it goes on."""

    def __init__(self, agent_id: str, run_id: str, *, after_s: float) -> None:
        super().__init__(agent_id, run_id, f"did not reply within {after_s:g} s; it goes on in {run_id}")
        self.after_s = after_s


class AgentFailed(NoReply):
    """Another agent's run ends with a failure."""


class AgentAwaitsApproval(NoReply):
    """Another agent calls a tool that needs somebody's approval, and waits for it."""

    def __init__(self, agent_id: str, run_id: str) -> None:
        super().__init__(agent_id, run_id, "called a tool that needs somebody's approval, and waits for it")


class AddressRefused(ToolError):
    """A URL that Perdure does not fetch, such as one of this machine, a private network or an unusual port."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address!r} was not asked for: {reason}.")
        self.address, self.reason = address, reason


class SandboxUnavailable(PerdureError):
    """Custom tools are not run: this machine can't hold code back well enough, or the sandbox does not start.

    Args:
        missing: the names of the measures that don't hold here; `perdure doctor` says what each means.
    """

    def __init__(self, why: str, *, missing: Sequence[str] = ()) -> None:
        details = f" (missing: {', '.join(missing)})" if missing else ""
        super().__init__(f"custom tools can't be run here: {why}{details}; `perdure doctor` tells more")
        self.why, self.missing = why, tuple(missing)


class HookBlocked(PerdureError):
    """A hook did not let something happen. A message that it refused was not kept; a run that it ended keeps its own.

    Args:
        point: where, as in `core.hooks.HookPoint`.
    """

    def __init__(self, hook: str, point: str, reason: str) -> None:
        super().__init__(f"blocked by hook {hook!r}: {reason}")
        self.hook, self.point, self.reason = hook, point, reason
