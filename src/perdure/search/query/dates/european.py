"""German, French and Spanish: words for days and units, counts of units, weekdays. Their months are in `dates`."""

from __future__ import annotations

import re

from perdure.search.query.dates.periods import Resolve, Unit, Which, ago, day_part, relative, rolling, weekday
from perdure.search.query.dates.phrases import Phrase, Rule, any_of, rule, words

__all__ = ["rules"]

_SAID_DAYS = {
    "vorgestern": -2,
    "gestern": -1,
    "heute": 0,
    "übermorgen": 2,
    "avant-hier": -2,
    "hier": -1,
    "aujourd'hui": 0,
    "demain": 1,
    "anteayer": -2,
    "antier": -2,
    "ayer": -1,
    "hoy": 0,
}
_PARTS = {"früh": "morning", "morgen": "morning", "nachmittag": "afternoon", "abend": "evening", "nacht": "night"} | {
    "matin": "morning",
    "après-midi": "afternoon",
    "soir": "evening",
}
_UNITS: dict[str, Unit] = {
    "tag": "day",
    "jour": "day",
    "día": "day",
    "dia": "day",
    "woche": "week",
    "semaine": "week",
    "semana": "week",
    "wochenende": "weekend",
    "week-end": "weekend",
    "weekend": "weekend",
    "fin de semana": "weekend",
    "monat": "month",
    "mois": "month",
    "mes": "month",
    "jahr": "year",
    "an": "year",
    "année": "year",
    "año": "year",
    "stunde": "hour",
    "heure": "hour",
    "hora": "hour",
}
_NUMBERS = {
    name: number
    for number, names in enumerate(
        (
            "ein eine einem einer un une una",
            "zwei deux dos",
            "drei trois tres",
            "vier quatre cuatro",
            "fünf cinq cinco",
            "sechs six seis",
            "sieben sept siete",
            "acht huit ocho",
            "neun neuf nueve",
            "zehn dix diez",
        ),
        start=1,
    )
    for name in names.split()
}
_FEW = (2, 5)  # ein paar, quelques, unos
_NUMBER = rf"(?:(?P<few>ein paar|einigen|quelques|unos|unas)|(?P<n>[0-9]{{1,4}}|{any_of(_NUMBERS)}))"
_UNIT = "(?P<unit>{})"
_DE, _FR, _ES = (
    "tage[ns]?|tag|wochen?|monate[ns]?|monat|jahre[ns]?|jahr|stunden?",
    "jours?|semaines?|mois|ans?|années?|heures?",
    "días?|dias?|semanas?|mes(?:es)?|años?|horas?",
)
_DAYS = {
    name: number
    for number, names in enumerate(
        (
            "montag lundi lunes",
            "dienstag mardi martes",
            "mittwoch mercredi miércoles",
            "donnerstag jeudi jueves",
            "freitag vendredi viernes",
            "samstag sonnabend samedi sábado",
            "sonntag dimanche domingo",
        )
    )
    for name in names.split()
}
_LAST = "letzte[rsnm]?|vorige[rsnm]?|vergangene[rsnm]?"
_THIS = "diese[rsnm]?"
_NEXT = "nächste[rsnm]?|kommende[rsnm]?"
_WORD = re.compile(r"[^\W\d_]+")
# "hier" is yesterday only among these: in German it is here.
_FRENCH = words(
    "je j ai a as avons avez nous vous tu elle il on ils elles que qu quoi le la les l du c est dit fait soir"
)


def rules() -> list[Rule]:
    heads = frozenset
    units = words("tag tage tagen woche wochen wochenende monat monate monaten monats jahr jahre jahren stunde stunden")
    french = words("jour jours semaine semaines mois an ans année années heure heures end weekend")
    spanish = words("día días dia dias semana semanas mes meses año años hora horas")
    return [
        rule(
            words("vorgestern gestern heute übermorgen hier aujourd demain anteayer antier ayer hoy"),
            rf"(?P<said>{'|'.join(_SAID_DAYS)})(?:(?: au)? (?P<part>{'|'.join(_PARTS)}))?",
            _said_day,
        ),
        rule(
            units,
            rf"(?:(?P<last>{_LAST})|(?P<this>{_THIS})|(?P<next>{_NEXT})) (?P<unit>wochenende|woche|monat|jahr)s?",
            _unit,
        ),
        rule(french, r"(?P<this>ce|cette) (?P<unit>week-end|weekend|semaine|mois|année)(?:-ci)?", _unit),
        rule(
            french,
            r"(?:la |le |l')?(?P<unit>week-end|weekend|semaine|mois|an|année) "
            r"(?:(?P<last>derni[eè]re?|passée?)|(?P<next>prochaine?))",
            _unit,
        ),
        rule(spanish, r"(?P<this>esta|este) (?P<unit>fin de semana|semana|mes|año)", _unit),
        rule(
            spanish,
            r"(?:la |el )?(?P<unit>fin de semana|semana|mes|año) "
            r"(?:(?P<last>pasad[oa]|anterior)|(?P<next>próxim[oa]|que viene))",
            _unit,
        ),
        rule(units, rf"vor {_NUMBER} {_UNIT.format(_DE)}", _ago),
        rule(french, rf"il y a {_NUMBER} {_UNIT.format(_FR)}", _ago),
        rule(spanish, rf"hace {_NUMBER} {_UNIT.format(_ES)}", _ago),
        rule(units, rf"(?:der |den |die )?(?:letzten?|vergangenen?) {_NUMBER} {_UNIT.format(_DE)}", _rolling),
        rule(french, rf"(?:les )?{_NUMBER} (?:derniers|dernières) {_UNIT.format(_FR)}", _rolling),
        rule(spanish, rf"(?:los |las )?[uú]ltim[oa]s {_NUMBER} {_UNIT.format(_ES)}", _rolling),
        rule(
            heads(_DAYS),
            rf"(?:(?:el|le) )?(?:(?:(?P<last>{_LAST})|(?P<this>{_THIS})|(?P<next>{_NEXT})) )?(?P<day>{'|'.join(_DAYS)})"
            r"(?: (?:(?P<last2>dernier|passé|pasado)|(?P<next2>prochain|próximo)))?",
            _weekday,
        ),
    ]


def _phrase(found: re.Match[str], resolve: Resolve) -> Phrase:
    return Phrase(*found.span(), resolve)


def _said_day(found: re.Match[str]) -> Phrase | None:
    if found["said"] == "hier" and _FRENCH.isdisjoint(_WORD.findall(found.string[: found.end() + 100][-200:])):
        return None
    return _phrase(found, day_part(relative("day", _SAID_DAYS[found["said"]]), _PARTS.get(found["part"], "")))


def _unit_of(word: str) -> Unit:
    """The unit of a word in any number or case."""
    word = " ".join(word.split())
    for size in range(len(word), 1, -1):
        if word[:size] in _UNITS:
            return _UNITS[word[:size]]
    return "day"


def _unit(found: re.Match[str]) -> Phrase:
    groups = found.groupdict()
    return _phrase(
        found, relative(_unit_of(found["unit"]), -1 if groups.get("last") else 1 if groups.get("next") else 0)
    )


def _count(found: re.Match[str]) -> tuple[int, int]:
    if found["few"]:
        return _FEW
    number = _NUMBERS[found["n"]] if found["n"] in _NUMBERS else int(found["n"])
    return number, number


def _ago(found: re.Match[str]) -> Phrase:
    return _phrase(found, ago(*_count(found), _unit_of(found["unit"])))


def _rolling(found: re.Match[str]) -> Phrase:
    return _phrase(found, rolling(_count(found)[1], _unit_of(found["unit"])))


def _weekday(found: re.Match[str]) -> Phrase:
    said: dict[str, Which] = {"last": "last", "last2": "last", "this": "this", "next": "next", "next2": "next"}
    which: Which = next((which for name, which in said.items() if found[name]), "")
    return Phrase(*found.span(), weekday(_DAYS[found["day"]], which), floating=not which, weekday=True)
