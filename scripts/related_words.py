"""Make the list of related words that the search without vectors uses.

    python -m scripts.related_words MINILM WORDNET > src/perdure/search/ranking/related_words.txt

MINILM is a folder with all-MiniLM-L6-v2, WORDNET one with WordNet's dictionary (Debian: `wordnet-base`). The words are
those of MiniLM's vocabulary that WordNet knows, without names of people: whoever asks for John must not get James. Two
are related if their vectors, after the mean of all is subtracted, have a cosine of at least 0.38.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.core.text.words import STOP_WORDS, english_stem
from perdure.providers.embeddings.minilm import MiniLM
from perdure.providers.embeddings.weights import open_folder

__all__ = ["main"]

WORDS = 14_000
LEAST_COSINE, MOST_RELATED = 0.38, 12
LEAST_DEGREE = 1.5
NAMES = (
    "john mary david sarah michael emma robert linda james susan peter anna thomas laura george alice daniel julia"
    " kevin maria"
)
NAME_COSINE, NAME_USES = 0.25, 4
"""A word is a name of people if it is so near to the mean of `NAMES`, and WordNet's texts use it less often."""
ENDINGS = {"s": "", "es": "", "ies": "y", "ed": "", "d": "", "ing": "", "er": "", "est": "", "ly": ""}
HEAD = """\
# English words, and those that are related to them in meaning: made by scripts/related_words.py with all-MiniLM-L6-v2
# (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, Apache License 2.0).
# A line: a stem, the words with this stem, a colon, related stems, each with its degree as the last digit.
"""


class WordNet:
    """Which words WordNet knows, and how often its texts use them."""

    def __init__(self, folder: Path) -> None:
        paths = [*folder.glob("index.*"), *folder.glob("*.exc")]
        self._known = {line.split(" ", 1)[0] for path in paths for line in path.read_text().splitlines()}
        self.uses: dict[str, int] = defaultdict(int)
        for line in (folder / "cntlist.rev").read_text().splitlines():
            key, _, uses = line.split()
            self.uses[key.partition("%")[0]] += int(uses)

    def knows(self, word: str) -> bool:
        """Return whether a word or what it is a form of is in WordNet."""
        bases = {word} | {word.removesuffix(end) + base for end, base in ENDINGS.items() if word.endswith(end)}
        return not self._known.isdisjoint(bases | {f"{base}e" for base in bases - {word}})


def main() -> None:
    """Print the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("minilm", type=Path)
    parser.add_argument("wordnet", type=Path)
    arguments = parser.parse_args()
    wordnet = WordNet(arguments.wordnet)
    vocabulary = re.findall(r"^[a-z]{3,}$", (arguments.minilm / "vocab.txt").read_text(), re.MULTILINE)
    forms: dict[str, list[str]] = defaultdict(list)
    for word in vocabulary:
        if word not in STOP_WORDS:
            forms[english_stem(word)].append(word)
    for stem, words in forms.items():
        words += {form for word in words for form in _regular_forms(word) if english_stem(form) == stem} - {*words}
    known = [word for word in vocabulary if word not in STOP_WORDS and wordnet.knows(word)][:WORDS]
    first = {english_stem(word): word for word in reversed(known)}
    stems = [stem for stem in first if len(stem) > 2 and stem not in STOP_WORDS]
    vectors = asyncio.run(_vectors(arguments.minilm, [*(first[stem] for stem in stems), *NAMES.split()]))
    vectors -= vectors[: len(stems)].mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    name = vectors[len(stems) :].mean(axis=0)
    like_names = vectors[: len(stems)] @ (name / np.linalg.norm(name)) >= NAME_COSINE
    uses = np.array([sum(wordnet.uses[word] for word in forms[stem]) for stem in stems])
    kept = ~like_names | (uses >= NAME_USES)
    stems = [stem for stem, keep in zip(stems, kept.tolist(), strict=True) if keep]
    print(HEAD + "\n".join(sorted(_lines(stems, forms, vectors[: len(kept)][kept]))))


def _regular_forms(word: str) -> Sequence[str]:
    """Return the plural of a noun and the forms of a verb, as if the word were one."""
    if re.search("(s|ed|ing|ly)$", word):
        return ()
    if re.search("[^aeiou]y$", word):
        return (f"{word[:-1]}ies", f"{word[:-1]}ied", f"{word}ing")
    if word.endswith("e"):
        return (f"{word}s", f"{word}d", f"{word[:-1]}ing")
    return (f"{word}{'es' if re.search('(x|z|ch|sh)$', word) else 's'}", f"{word}ed", f"{word}ing")


async def _vectors(folder: Path, words: Sequence[str]) -> NDArray[np.float32]:
    """Return (words, dimensions) the vector of each word."""
    model = MiniLM(open_folder(folder))
    try:
        return np.concatenate([await model.embed(words[start : start + 512]) for start in range(0, len(words), 512)])
    finally:
        await model.close()


def _lines(stems: Sequence[str], forms: Mapping[str, Sequence[str]], vectors: NDArray[np.float32]) -> Iterator[str]:
    """Yield the line of each stem that is related to any."""
    cosines = np.vstack([vectors[start : start + 1000] @ vectors.T for start in range(0, len(stems), 1000)])
    np.fill_diagonal(cosines, 0)
    degrees = LEAST_DEGREE + (10 - LEAST_DEGREE) * (cosines - LEAST_COSINE) / (1 - LEAST_COSINE)
    for row, stem in enumerate(stems):
        nearest = np.argsort(-cosines[row])[:MOST_RELATED]
        near = nearest[cosines[row, nearest] >= LEAST_COSINE].tolist()
        related = sorted(f"{stems[other]}{min(9, round(float(degrees[row, other])))}" for other in near)
        if related or (cosines[:, row] >= LEAST_COSINE).any():
            yield f"{stem} {' '.join(sorted(forms[stem]))}:{' '.join(related)}"


if __name__ == "__main__":
    main()
