"""Facts on LoCoMo: the model calls that extraction takes, and what a search of messages finds with facts.

    python -m benchmarks.facts_locomo locomo.json[.gz]

Each conversation is sent to an agent, message by message, and its facts are extracted by a scripted model: counted are
its calls for batches and for summaries of communities, and those while a message was answered. Then the evidence of
each question is looked for with `agent.search`, without facts, with those of the built-in patterns, and with those of
the script: what each sentence says, with the speaker's name in place of "I". Printed is the recall of the evidence
among the first 10, of all questions and of the multi-hop ones; exit code 1 if facts make either lower. The data (CC
BY-NC 4.0) is no part of this repository.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.adapters import EXTRACTOR, FactRetriever, Retriever
from benchmarks.ranking_weights import MULTI_HOP, Question, Turn, conversations
from perdure import AsyncPerdure
from perdure.core.models import ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says

__all__ = ["main"]

CALLED_TURNS, DEPTH, WORDS_MIN, NAME_WORDS, FACTS_MAX, TEXT_MAX_CHARS = 8, 10, 5, 3, 100, 500
_TURN = re.compile(r"^(\d+)\. \[[^\]]*\] ([^:\n]+): (.*?)(?=^\d+\. \[|\Z)", re.MULTILINE | re.DOTALL)
_SPEAKER = re.compile(r"\b(I'm|I've|I'll|I'd|I|my|My|me|mine|myself)\b")
_FORMS = {"I'm": "{} is", "I've": "{} has", "I'll": "{} will", "I'd": "{} would", "my": "{}'s", "My": "{}'s"}

SETUPS: Mapping[str, Callable[[], Retriever]] = {
    "without facts": lambda: Retriever("none"),
    "facts by patterns": lambda: FactRetriever("none"),
    "facts by the script": lambda: FactRetriever("none", ScriptedModel(extracts=extracts)),
}


def extracts(request: ModelRequest) -> ModelReply:
    """A fact for each sentence that is no question, about its speaker and its longest words."""
    text = request.messages[-1].text
    entities: dict[str, str] = {}
    facts = []
    for number, speaker, said in _TURN.findall(text[text.rindex("<turns>") :]):
        for sentence in re.split(r"(?<=[.!?])\s+", said.strip()):
            words = re.findall(r"[A-Za-z']+", sentence)
            name = " ".join(sorted({word.lower() for word in words}, key=lambda word: (-len(word), word))[:NAME_WORDS])
            if len(words) < WORDS_MIN or sentence.endswith("?"):
                continue
            entities |= {speaker: "Person", name: "Concept"}
            plain = _SPEAKER.sub(lambda match, speaker=speaker: _FORMS.get(match[0], "{}").format(speaker), sentence)
            fact = {"subject": speaker, "relation": "TOLD_OF", "object": name, "decision": "ADD"}
            facts.append({**fact, "text": plain[:TEXT_MAX_CHARS], "turns": [int(number)]})
    named = [{"name": name, "type": kind} for name, kind in entities.items()]
    return says(json.dumps({"entities": named, "facts": facts[:FACTS_MAX], "certain": True}))


async def count_calls(folder: Path, turns: Sequence[Turn]) -> tuple[int, int, int]:
    """Send every other turn, which the model answers with the next; return (calls for batches, for summaries, those
    while a message waited)."""
    said = [turn.body for turn in turns]
    answers = iter(said[1::2])
    model = ScriptedModel(otherwise=lambda _: says(next(answers, "Bye.")), extracts=extracts)
    settings = replace(Settings(), model=EXTRACTOR, embedding="none", facts="model")
    async with await AsyncPerdure.open(folder / "calls.db", models={EXTRACTOR: model}, settings=settings) as perdure:
        agent, beside = await perdure.create_agent(), 0
        for text in said[::2]:
            before = len(model.extraction_requests)
            await agent.send(text)
            beside += len(model.extraction_requests) - before
        await agent.facts.extract()
        batches = sum("<turns>" in request.messages[-1].text for request in model.extraction_requests)
        return batches, len(model.extraction_requests) - batches, beside


def recall(retriever: Retriever, turns: Sequence[Turn], questions: Sequence[Question]) -> list[tuple[int, float]]:
    """Return (category, share of the evidence among the first hits) of each question."""
    try:
        retriever.index(turns)
        found = [(one, set(retriever.search(one.text, DEPTH))) for one in questions]
        return [(one.kind, len(one.evidence & hits) / len(one.evidence)) for one, hits in found]
    finally:
        retriever.close()


def main() -> int:
    """Print the figures; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    talks = list(conversations(parser.parse_args().data))
    met = True
    for turns, _ in talks:
        with tempfile.TemporaryDirectory() as folder:
            calls, summaries, beside = asyncio.run(count_calls(Path(folder), turns))
        most = math.ceil((len(turns) + len(turns) % 2) / CALLED_TURNS)
        met &= calls <= most and not beside
        print(
            f"{turns[0].conversation}: {len(turns)} turns, {calls} calls (at most {most}) and {summaries} for"
            f" summaries, {beside} while a message waited",
            flush=True,
        )
    lowest: tuple[float, ...] = ()
    print(f"\n{'R@10':<22}{'all':>8}{'multi-hop':>12}")
    for name, setup in SETUPS.items():
        shares = [share for turns, questions in talks for share in recall(setup(), turns, questions)]
        figures = tuple(
            100 * statistics.fmean(share for kind, share in shares if kind in kinds)
            for kinds in (range(10), (MULTI_HOP,))
        )
        lowest = lowest or figures
        is_met = all(figure >= low for figure, low in zip(figures, lowest, strict=True))
        met &= is_met
        print(f"{name:<22}{figures[0]:>8.2f}{figures[1]:>12.2f}  {'ok' if is_met else 'MISSED'}", flush=True)
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
