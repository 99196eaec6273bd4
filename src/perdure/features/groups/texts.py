"""What an agent of a group is sent: what was said since it last spoke, each part with the name of its speaker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from perdure.core.ids import AgentId, GroupId, MessageId
from perdure.core.messages import Message, Text, images_of, text_without_images
from perdure.core.sources import Source
from perdure.core.text.forms import name_key
from perdure.core.text.markup import UNSEEN
from perdure.engine.records.run_request import NewMessage
from perdure.features.groups.log import load_messages
from perdure.features.groups.tables import GroupMessages
from perdure.features.groups.values import GroupMember, GroupMessage, GroupPlan, Speaker
from perdure.storage.tx import Tx

ENTRIES_MAX = 200
"""The most entries that an agent is sent at once; it is told how many earlier ones are left out."""
CHARS_MAX = 100_000

USER = "User"
USER_CHARS = 80
MARK_CHARS, MARK_ENDS = 400, 4
"""How many characters that are seen a name in brackets may have, and how many closing brackets may be its end."""

# White space, what nobody sees, and marks without a letter, as far as they go: matched once, so the time is linear.
_BLANK = rf"\s{UNSEEN}\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_GAP = re.compile(rf"(?<![{_BLANK}])[{_BLANK}]++|\A")
_MARK = re.compile(rf"[\[［](?:[{_BLANK}]*+[^{_BLANK}]){{0,{MARK_CHARS}}}+")
_BREAK = re.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_UNREAD = re.compile(rf"[\[\]［］{UNSEEN}]+")

_SPEAKS_FIRST = (
    "(You are in a group conversation with {others} and a user. What the others say is marked with their names."
    " Say only what you want to say yourself, without your name.)"
)
_REST = "(The rest is left out.)"
_ANSWERS = "(You lead this group. Now answer the user, from what its agents say.)"
_CHOOSES = (
    "(You lead this group. Choose who speaks next:\n\n{agents}\n\nReply with one of these names or ids and nothing"
    " else. If nobody has to speak any more, reply with {token})"
)
_CHOOSES_AGAIN = (
    "(That names none of the agents, or more than one. Reply with one of these names or ids and nothing else:"
    " {agents}. Or reply with {token})"
)


def build_input(
    tx: Tx, group_id: GroupId, plan: GroupPlan, speaker: Speaker, *, seen_seq: int, limit_chars: int
) -> NewMessage:
    """Build the message for a speaker: the entries up to `seen_seq` that it has not seen, in at most `limit_chars`, and
    the pictures of users. Its sources are the agents whose words it holds."""
    shown = tx.of(GroupMessages).find_seen(group_id, speaker.agent_id)
    entries = tx.of(GroupMessages).list(
        group_id, above=shown, below=seen_seq + 1, newest_first=True, limit=ENTRIES_MAX + 1
    )[::-1]
    left_out = len(entries) > ENTRIES_MAX
    entries = [one for one in entries[-ENTRIES_MAX:] if one.sender_id != speaker.agent_id and one.kind != "choice"]
    messages = load_messages(tx, entries)
    labels = labels_of(plan, entries)
    names = _names_of(entries, labels)
    parts: list[str] = []
    size = 0
    for entry in reversed(entries):
        text = _render_entry(entry, messages, labels, names)
        size += len(text)
        is_asked = entry.kind == "user" and entry.turn_seq == entries[-1].turn_seq  # nobody answers without it
        if size > min(CHARS_MAX, limit_chars // 2) and parts and not is_asked:
            left_out = True
        elif text:
            parts.append(text)
    if left_out:
        parts.append("(Earlier messages are left out.)")
    if frame := _opening(plan, speaker, labels, is_first=shown is None):
        parts.append(frame)
    parts.reverse()
    frame = _closing(plan, speaker, labels, is_again=shown is not None and not entries)
    if sum(map(len, parts)) + 2 * len(parts) + len(frame) > limit_chars:  # one message is nearly as long as any may be
        room = max(0, limit_chars - len(frame) - len(_REST) - 4)
        parts = ["\n\n".join(parts)[:room], _REST]
    if frame:
        parts.append(frame)
    pictures = tuple(image for entry in entries if entry.kind == "user" for image in images_of(entry.parts))
    senders = dict.fromkeys(entry.sender_id for entry in entries if entry.sender_id is not None)
    sources = tuple(Source.of("other_agent", sender) for sender in senders)
    return NewMessage((Text("\n\n".join(parts)), *pictures), sender_id=group_id, sources=sources)


def labels_of(plan: GroupPlan, entries: Sequence[GroupMessage] = ()) -> Mapping[AgentId, str]:
    """Return agent -> its label: its name, with its id if another agent, or the user, has the same name."""
    names = {entry.sender_id: entry.sender_name for entry in entries if entry.sender_id is not None}
    names |= {member.agent_id: member.name for member in plan.members}
    counts = Counter([USER.casefold(), *(name.casefold() for name in names.values())])
    return {id_: name if counts[name.casefold()] == 1 else f"{name} ({id_})" for id_, name in names.items()}


def parse_choice(text: str, participants: Sequence[GroupMember], token: str) -> tuple[AgentId | None, bool]:
    """Return whom a manager's answer names, and whether it ends the turn instead; (None, False): neither.

    A line that is nothing but a name or id counts first, then the token anywhere, then the only name that occurs.
    """
    by_word: dict[str, set[AgentId]] = {}
    for member in participants:
        for word in (member.name, member.agent_id):
            by_word.setdefault(word.casefold(), set()).add(member.agent_id)
    for line in text.splitlines():
        stripped = line.strip().strip("[]()*`\"'.:- ").casefold()
        if len(found := by_word.get(stripped, set())) == 1:
            return next(iter(found)), False
    if token in text:
        return None, True
    rest, chosen = text.casefold(), set[AgentId]()
    for word in sorted(by_word, key=len, reverse=True):  # a name may be a part of another one
        rest, count = re.subn(rf"(?<!\w){re.escape(word)}(?!\w)", " ", rest)
        if count:
            chosen |= by_word[word]
    return (next(iter(chosen)), False) if len(chosen) == 1 else (None, False)


def _opening(plan: GroupPlan, speaker: Speaker, labels: Mapping[AgentId, str], *, is_first: bool) -> str:
    """The text before the entries of a message for a speaker: who is in the group, the first time; else empty."""
    if not is_first or speaker.task != "speak":
        return ""
    others = [labels[one.agent_id] for one in plan.participants if one.agent_id != speaker.agent_id]
    if plan.manager is not None:
        others.append(f"{labels[plan.manager.agent_id]}, who leads it,")
    return _SPEAKS_FIRST.format(others=", ".join(others) or "nobody else")


def _closing(plan: GroupPlan, speaker: Speaker, labels: Mapping[AgentId, str], *, is_again: bool) -> str:
    """Return the text after the entries of a message for a speaker, which says what to do, or nothing. `is_again`:
    there are no entries, as nobody has spoken since its last speech."""
    if speaker.task == "answer":
        return _ANSWERS
    if speaker.task == "speak":
        return "" if not is_again else "(Nobody has said anything since. Go on.)"
    token = plan.termination_token or ""
    if is_again:
        return _CHOOSES_AGAIN.format(agents=", ".join(labels[one.agent_id] for one in plan.participants), token=token)
    agents = "\n".join(f"- {participant.name} ({participant.agent_id})" for participant in plan.participants)
    return _CHOOSES.format(agents=agents, token=token)


def _render_entry(
    entry: GroupMessage, messages: Mapping[MessageId, Message], labels: Mapping[AgentId, str], names: Collection[str]
) -> str:
    """Return an entry after its speaker's name, `[Anna] ...`; empty: its message was deleted. A line that begins like
    another speech, with one of `names` in brackets, gets a backslash. `labels`: how agents are called."""

    def quote(text: str) -> str:
        """Put a backslash before each line that looks like another speech."""
        return _GAP.sub(lambda gap: f"{gap[0]}\\" if _begins_speech(gap, names) else gap[0], text)

    if entry.sender_id is None:
        return f"[{_user_label(entry, labels)}] {quote(text_without_images(entry.parts))}"
    label = labels[entry.sender_id]
    if entry.kind in ("failure", "approval"):
        return f"[{label}] (could not speak: {quote(entry.text)})"
    if entry.kind == "silence" or entry.message_id is None:
        return f"[{label}] (says nothing)"
    message = messages.get(entry.message_id)
    return "" if message is None else f"[{label}] {quote(message.text)}"


def _user_label(entry: GroupMessage, labels: Mapping[AgentId, str]) -> str:
    """What a user is called: the name that came with the message, unless it is an agent's too."""
    name = " ".join(re.sub(r"[\[\]]", " ", entry.sender_name).split())[:USER_CHARS]
    taken = {label.casefold() for label in labels.values()}
    return name + (" (user)" if name.casefold() in taken else "") if name else USER


def _names_of(entries: Sequence[GroupMessage], labels: Mapping[AgentId, str]) -> Collection[str]:
    """The names of all speakers, in the form that `_begins_speech` compares."""
    users = {_user_label(entry, labels) for entry in entries if entry.sender_id is None}
    return {_read_name(name) for name in (USER, *users, *labels.values())}


def _begins_speech(gap: re.Match[str], names: Collection[str]) -> bool:
    """Whether a line break, with the text after it, would look to a model like a speech of one of these names."""
    mark = _MARK.match(gap.string, gap.end())
    if mark is None or (gap.start() and not _BREAK.search(gap[0])):
        return False
    ends = [end.start() for end in re.finditer("[]］]", mark[0])][:MARK_ENDS]
    return any(_read_name(mark[0][:end]) in names for end in ends)


def _read_name(name: str) -> str:
    """A name as a model reads it: in any case and width, without brackets and what nobody sees."""
    return name_key(_UNREAD.sub("", name))
