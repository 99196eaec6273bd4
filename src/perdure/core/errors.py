"""Every error Perdure raises on purpose.

    PerdureError
    ├── InvalidInput            the caller's value is wrong; nothing was written
    │   ├── EmptyMessage
    │   ├── MessageTooLarge, TooMany
    │   ├── NameInvalid
    │   ├── ScheduleInvalid, TimeZoneUnknown
    │   ├── EmbeddingMismatch
    │   ├── SourceInvalid, SchemaMismatch
    │   ├── ToolRulesInvalid
    │   ├── AnswerInvalid, NothingToCompact
    │   ├── FeatureMissing
    │   └── FileNameInvalid, FileTypeUnsupported, FileEncodingInvalid, FileTooLarge
    ├── NotFound                no such agent, block, conversation, run, ... here
    │   └── BlockNotFound       (also a ToolError)
    ├── Conflict                the state has moved on, or is in use
    │   ├── VersionConflict
    │   ├── AlreadyExists
    │   ├── ToolBuiltIn
    │   ├── ConversationBusy
    │   ├── GroupBusy
    │   ├── ApprovalPending
    │   ├── ProposalDecided, ProposalOutdated
    │   ├── SnapshotDiffers
    │   └── IdempotencyMismatch
    ├── ToolError               the model sees it and may act on it; the run goes on
    │   ├── InvalidArguments
    │   ├── CallRepeated, AnswerDemanded
    │   ├── BlockNotFound
    │   ├── BlockLimitExceeded
    │   ├── BlockReadOnly
    │   ├── BlockProtected
    │   ├── ProposalRefused
    │   ├── BlockChanged
    │   ├── TextNotFound
    │   ├── TextAmbiguous
    │   ├── LineNumbersInText
    │   ├── PatchInvalid
    │   ├── UntrustedWrite
    │   ├── CircularWait, TooManyHops, TooManyMessages
    │   ├── NoReply
    │   │   └── ReplyTimeout, AgentFailed, AgentAwaitsApproval
    │   └── AddressRefused
    ├── DataTooLarge            data from outside pass a limit; they were not parsed
    ├── BodyUnreadable          a body from outside can't be unpacked
    ├── ConversionFailed        a file could not be turned into text; the others go on
    ├── ExtraMissing            packages that only some need are not installed
    ├── SecretKeyMissing        secrets need a key, and none is set
    ├── SecretUnreadable        a secret can't be decrypted
    ├── McpUnreachable          an MCP server can't be reached, or ended
    ├── McpStdioRefused         an MCP server that is a program may be registered by an admin only
    ├── McpPrivateRefused       so may one on this machine or in a private network, where others use the API
    ├── LimitReached            an agent or key has used what it may in a time; nothing was written
    ├── RequestRefused          one request of a batch can't be accepted, so none was
    ├── RunFailed               a run ended without an answer; the message is kept
    ├── SandboxUnavailable      this machine can't hold code back; no custom tool is run
    ├── HookBlocked             a hook did not let it happen
    ├── ModelError              the provider failed; the run ends with its reason
    │   ├── ModelNotFound
    │   ├── ModelRateLimited, ModelQuotaExceeded, ModelAuthenticationFailed
    │   ├── ModelOverloaded (ModelLoading), ModelUnreachable, ModelTimeout, ModelStreamCut
    │   ├── ModelRequestRefused (ModelTakesNoTools), ModelOverflow
    │   └── ModelRefused, ModelReplyEmpty, ModelReplyInvalid
    ├── IrreducibleFloor        a request can't be made to fit its window; the run ends before the call
    ├── StoreError              the database could not do it
    │   ├── StoreBusy
    │   ├── StoreFull
    │   ├── StoreReadOnly
    │   ├── StoreUnavailable
    │   ├── StoreDamaged
    │   ├── StoreTooNew
    │   ├── StoreIncomplete
    │   ├── StoreClosed
    │   └── NotAStore
    ├── IllegalLog              a log that must not exist was found: a defect of ours
    ├── ReplayMismatch          a past request can't be rebuilt as it was sent
    └── LeaseLost               another process has taken this run over

Messages say what happened, with which value, and what helps; the facts stand in attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from perdure.core.model_errors import *  # noqa: F403
from perdure.core.model_errors import ToolError as ToolError
from perdure.core.runs import StopReason
from perdure.core.store_errors import *  # noqa: F403
from perdure.core.store_errors import PerdureError as PerdureError
from perdure.core.text.pip_line import pip_line


class InvalidInput(PerdureError):
    """A value from the caller can't be used. Nothing was written."""


@contextmanager
def rename_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Have an InvalidInput that is raised within begin with the caller's own name of an argument: `names` are the
    library's name -> the caller's, such as {"since": "start_date"}."""
    try:
        yield
    except InvalidInput as error:
        text = str(error)
        if (match := _NAMED.match(text)) and match[1] in names:
            error.args = (names[match[1]] + text[match.end(1) :],)
        raise


_NAMED = re.compile(r"(\w+)(?::| (?:is|are|has|have|names)\b)")
"""The beginning of a text that names an argument."""


@contextmanager
def file_errors(name: object, action: str) -> Iterator[None]:
    """Turn an OSError that is raised within into InvalidInput: `name` can't be `action`, such as `read`, and why."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{name} can't be {action}: {error.strerror or error}") from error


class FeatureMissing(InvalidInput):
    """The feature that would do this is not installed. `problem`: what can't be done; `helps`: what helps instead."""

    def __init__(self, feature: str, problem: str, helps: str) -> None:
        super().__init__(f"{problem}: this program lacks its feature `{feature}`; {helps}")
        self.feature = feature


class EmptyMessage(InvalidInput):
    """A message without any text was sent."""

    def __init__(self) -> None:
        super().__init__("the message is empty: send at least one character that is not white space")


class MessageTooLarge(InvalidInput):
    """A message has more characters than the server, or the limit `message_chars` of an agent or key allows. `whose`:
    who has this limit, empty for the server; `helps`: how it is changed."""

    def __init__(
        self, *, size: int, limit: int, whose: str = "", helps: str = "raise PERDURE_MESSAGE_LIMIT_CHARS"
    ) -> None:
        owner = f" of {whose}" if whose else ""
        super().__init__(
            f"the message has {size:,} characters, the limit{owner} is {limit:,}: send it in parts, or {helps}"
        )
        self.size, self.limit = size, limit


class TooMany(InvalidInput):
    """An agent, item or request has more of `what` than `setting` lets it have. Nothing was written."""

    def __init__(self, what: str, *, count: int, limit: int, setting: str) -> None:
        super().__init__(f"{count:,} {what} are too many, the limit is {limit:,}: use fewer, or raise {setting}")
        self.what, self.count, self.limit, self.setting = what, count, limit, setting


class NameInvalid(InvalidInput):
    """The name of an agent, or of another thing of this `kind`, has characters that no name may have."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} name {name[:80]!r} can't be used: 1 to 200 characters, letters, digits, spaces, _ ' and - only"
        )
        self.kind, self.name = kind, name


class ScheduleInvalid(InvalidInput):
    """A schedule can't be kept: it would never fire, fires too often, or its time is past or can't be read."""


class TimeZoneUnknown(InvalidInput):
    """There is no time zone of this name here; `near` are names like it."""

    def __init__(self, name: str, *, near: Sequence[str] = ()) -> None:
        helps = f"did you mean {' or '.join(near)}?" if near else "give a name such as Europe/Rome or UTC"
        super().__init__(f"time zone {name!r:.80} is not known here: {helps}")
        self.name, self.near = name, tuple(near)


class ToolRulesInvalid(InvalidInput):
    """Tool rules can't be read, or contradict each other."""


class AnswerInvalid(InvalidInput):
    """An answer does not fit the tool calls that wait for one. Nothing was written."""


class NothingToCompact(InvalidInput):
    """No message is in view of the conversation that could leave it."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"no message of {conversation_id} is in view that could leave it: there is nothing to compact")


class FileNameInvalid(InvalidInput):
    """No file in a folder can have this name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"file name {name[:80]!r} can't be used: {problem}")
        self.name, self.problem = name, problem


class FileTypeUnsupported(InvalidInput):
    """No text can be made of files of this kind."""

    def __init__(self, name: str, *, found: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"file {name[:80]!r} can't be read: {found}. What can be read: {', '.join(supported)},"
            " and any other plain text"
        )
        self.name, self.found, self.supported = name, found, tuple(supported)


class FileEncodingInvalid(InvalidInput):
    """A file can't be read in the encoding that was chosen for it."""

    def __init__(self, encoding: str, problem: str) -> None:
        super().__init__(
            f"encoding {encoding[:40]!r} can't be used: {problem}. Give one such as gb18030, big5, shift_jis, euc-kr,"
            " windows-1251, windows-1252, iso-8859-2 or utf-16, or none to have it guessed"
        )
        self.encoding, self.problem = encoding, problem


class FileTooLarge(InvalidInput):
    """A file has more bytes than `file_limit_bytes`."""

    def __init__(self, name: str, *, size: int, limit: int) -> None:
        super().__init__(f"file {name[:80]!r} has {size:,} bytes, the limit is {limit:,}: split it, or raise the limit")
        self.name, self.size, self.limit = name, size, limit


class EmbeddingMismatch(InvalidInput):
    """Vectors of one embedding model meet those of another, which can't be compared."""

    def __init__(
        self, owner_id: str, *, stored_model: str, stored_dimensions: int | None, model: str, dimensions: int
    ) -> None:
        stored = "" if stored_dimensions is None else f" with {stored_dimensions} dimensions"
        super().__init__(
            f"{owner_id} has vectors of {stored_model!r}{stored}, not of {model!r} with {dimensions}:"
            " `perdure store reindex` embeds its texts anew, or set the embedding model back"
        )
        self.owner_id, self.model, self.dimensions = owner_id, model, dimensions
        self.stored_model, self.stored_dimensions = stored_model, stored_dimensions


class SourceInvalid(InvalidInput):
    """A tool's source does not parse, or lacks something that a tool needs. `line`: where; None: the whole source."""

    def __init__(self, reason: str, *, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason, self.line = reason, line


class SchemaMismatch(InvalidInput):
    """The JSON schema that was given with a tool's source contradicts its function."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"json_schema contradicts the source at parameter {parameter[:80]!r}: {problem}")
        self.parameter, self.problem = parameter, problem


class NotFound(PerdureError):
    """The organisation has no such object; `kind` names its type in words, `key` is its id, name or label."""

    def __init__(self, kind: str, key: str, *, hint: str = "") -> None:
        what, of, owner = kind.partition(" of this ")
        super().__init__(f"{what} {key!r}{of}{owner} not found" + (f": {hint}" if hint else ""))
        self.kind, self.key = kind, key


class LimitReached(PerdureError):
    """An agent or key has used up its allowance of a minute or day. After `retry_after_s` seconds it may try again."""

    def __init__(self, text: str, *, retry_after_s: int) -> None:
        super().__init__(f"{text}: wait {retry_after_s:,} s, or raise its limit")
        self.retry_after_s = retry_after_s


class Conflict(PerdureError):
    """The state is not what the caller thought."""


class VersionConflict(Conflict):
    """Another writer changed the thing `key` after it was read; `expected` and `found` are its versions."""

    def __init__(self, key: str, *, expected: int, found: int | None) -> None:
        super().__init__(
            f"{key} is at version {found}, not {expected}: somebody else wrote first; read it again and repeat the edit"
        )
        self.key, self.expected, self.found = key, expected, found


class AlreadyExists(Conflict):
    """Another thing has this name or id already. `differing`: the fields in which it differs."""

    def __init__(self, kind: str, key: str, *, differing: Sequence[str] = (), helps: str = "") -> None:
        other = f" with other {', '.join(differing)}" if differing else ""
        helps = helps or "choose another name, or edit the one that is there"
        super().__init__(f"{kind} {key!r} exists already{other}: {helps}")
        self.kind, self.key, self.differing = kind, key, tuple(differing)


class ToolBuiltIn(Conflict):
    """The tool is Perdure's own, or a function of the program: it is not changed, deleted or replaced by another."""

    def __init__(self, name: str, *, helps: str) -> None:
        super().__init__(f"tool {name[:80]!r} is built in: {helps}")
        self.name = name


class ConversationBusy(Conflict):
    """Another run of the conversation has not ended."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"an answer is still being made ({run_id}): wait until it has ended, or stop it")
        self.run_id = run_id


class GroupBusy(Conflict):
    """Another turn of the group has not ended."""

    def __init__(self, group_id: str, turn_seq: int) -> None:
        super().__init__(f"{group_id} is still speaking (turn {turn_seq}): wait until it has ended, or stop it")
        self.group_id, self.turn_seq = group_id, turn_seq


class ApprovalPending(Conflict):
    """The conversation takes no message while its `calls` (ids) wait for a person or for results of the caller. `what`:
    the action that was refused, as a verb with its object."""

    def __init__(self, *, run_id: str, message_id: str, calls: Sequence[str], what: str = "send a new message") -> None:
        self.summary = (
            f"Cannot {what}: The agent is waiting for approval on a tool call. Please approve or deny the pending"
            " request before continuing."
        )
        super().__init__(f"{self.summary} It waits for {', '.join(calls)}; you can also cancel {run_id}")
        self.run_id, self.message_id, self.calls = run_id, message_id, tuple(calls)


class ProposalDecided(Conflict):
    """The proposal with this number was decided before; `state` is the decision."""

    def __init__(self, number: int, *, state: str) -> None:
        super().__init__(f"proposal {number} is {state} already: nothing was changed")
        self.number, self.state = number, state


class ProposalOutdated(Conflict):
    """What a proposal changes was changed after it was made, so it can't be applied as it was shown."""

    def __init__(self, label: str, *, number: int) -> None:
        super().__init__(
            f"{label!r} was changed after proposal {number} was made, so nothing was applied. Refuse it, or have the"
            " agent propose it anew"
        )
        self.label, self.number = label, number


class SnapshotDiffers(Conflict):
    """A restored agent would not send what its snapshot says, so nothing was changed."""

    def __init__(self) -> None:
        super().__init__("the next request would differ from that of the snapshot, so nothing was changed")


class IdempotencyMismatch(Conflict):
    """A new message came with the idempotency key of an earlier, different message."""

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for another message here: use a new key for a new message")
        self.key = key


class BlockNotFound(NotFound, ToolError):
    """The agent has no memory block with this label; `known` are the labels that it has."""

    def __init__(self, label: str, *, known: Sequence[str] = ()) -> None:
        NotFound.__init__(self, "memory block", label, hint=f"there are {', '.join(known)}" if known else "")
        self.label, self.known = label, tuple(known)


class RequestRefused(PerdureError):
    """One request of a batch was refused, by `refusal`. None of the batch was accepted. `place` counts from 0."""

    def __init__(self, place: int, refusal: PerdureError) -> None:
        super().__init__(f"requests.{place}: {refusal}")
        self.place, self.refusal = place, refusal


class ConversionFailed(PerdureError):
    """A file can't be turned into text, as it is damaged, encrypted, not what its name says, or past a limit."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"file {name[:80]!r} could not be converted: {reason}")
        self.name, self.reason = name, reason


class ExtraMissing(PerdureError):
    """A package that only some need is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        package = f"'perdure[{extra}]'"
        super().__init__(f"{what} needs packages that are not installed: {pip_line(package)}")
        self.what, self.extra = what, extra


class RunFailed(PerdureError):
    """A run ended without an answer. The message is kept; `reply`, a `perdure.Reply`, tells how far it came."""

    def __init__(self, message: str, *, run_id: str, stop_reason: StopReason, reply: Any) -> None:
        super().__init__(f"the run ended with {stop_reason}: {message}")
        self.run_id, self.stop_reason, self.reply = run_id, stop_reason, reply


class IllegalLog(PerdureError):
    """A log that must not exist was found, such as a call without a result in a finished run: a defect of ours."""


class ReplayMismatch(PerdureError):
    """A past request, rebuilt from the log, is not the one that was sent: the store is damaged, or a defect of ours.

    Args:
        recorded, rebuilt: the digests of the two; `rebuilt` is empty where no request can be made at all, and `why`
            then says what is missing.
    """

    def __init__(self, step_id: str, *, recorded: str, rebuilt: str = "", why: str = "") -> None:
        found = f"its digest is {rebuilt}, what was sent had {recorded}" if rebuilt else why
        super().__init__(
            f"the request of {step_id} can't be rebuilt from the log as it was sent: {found}. The store is damaged"
            " (`perdure doctor` looks), or this is a defect of Perdure: please report it"
        )
        self.step_id, self.recorded, self.rebuilt = step_id, recorded, rebuilt


class LeaseLost(PerdureError):
    """Another process has taken this run over; whoever sees this stops working on it."""
