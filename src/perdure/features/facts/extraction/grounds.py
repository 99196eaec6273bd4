"""Whether a name stands in what an extractor read: a model also names what nobody said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.sources import TRUSTED
from perdure.core.text.forms import match_form, name_key
from perdure.core.text.words import STOP_WORDS, stems
from perdure.features.facts.values.extraction import USER, ReadBatch, SpokenTurn
from perdure.providers.extractive.language import KIN

FIRST_PERSON = frozenset(map(name_key, ("I", "me", "myself", USER, "the user", "speaker", "我", "本人", "用户")))
_LATIN_KIN, _OTHER_KIN = ("|".join(word for word in KIN if word.isascii() == ascii) for ascii in (True, False))
_KIN = re.compile(rf"\b(?:{_LATIN_KIN})\b|{_OTHER_KIN}")
_JOINTS = re.compile(r"[的の\s]")
_FILLERS = STOP_WORDS | {name_key(USER), "year", "old"}


@dataclass(frozen=True, slots=True)
class BatchWords:
    """The words of a batch: its turns and those before, with speakers and names of known entities, as one text in
    matching form without spaces, as stems, and as the relations of relatives in it, such as `SISTER`."""

    text: str
    words: frozenset[str]
    kin: frozenset[str]

    @classmethod
    def of(cls, batch: ReadBatch) -> BatchWords:
        """Collect the words of a batch."""
        turns = [*batch.context, *batch.turns]
        known = [name for entity in batch.entities for name in (entity.name, *entity.aliases)]
        text = match_form("\n".join([*known, *(f"{turn.speaker}\n{turn.text}" for turn in turns)]))
        return cls(_JOINTS.sub("", text), frozenset(stems(text)), frozenset(KIN[word] for word in _KIN.findall(text)))

    def holds(self, name: str) -> bool:
        """Return whether each word of a name occurs, in any form; in scripts without spaces each pair of characters. A
        relative may be named by another word for the same relation."""
        name = name_key(name)
        unsaid = _KIN.sub(lambda kin: " " if KIN[kin[0]] in self.kin else kin[0], name)
        tokens = [stem for stem in stems(_JOINTS.sub(" ", unsaid)) if stem not in _FILLERS]
        if not tokens and unsaid == name:
            return name in FIRST_PERSON or _JOINTS.sub("", name) in self.text
        return all(token in self.words or self._holds_form(token) for token in tokens)

    def _holds_form(self, token: str) -> bool:
        """Return whether a stem is said in a longer text or as another form: `Warszawa` and `Warszawie`."""
        if len(token) <= 2:
            return not token.isascii() and token in self.text
        sizes = ((word, max(4, len(token) - 3, len(word) - 3)) for word in self.words if token[:4].isalpha())
        return any(token[:size] == word[:size] for word, size in sizes)


def speaker_of(turns: Sequence[SpokenTurn]) -> str | None:
    """Return the name of the only trusted user who speaks in these turns; None: there are several, or none."""
    speakers = {turn.speaker for turn in turns if turn.is_user and turn.trust in TRUSTED}
    return speakers.pop() if len(speakers) == 1 else None
