"""The words that languages use for dates, as data. Perdure reads them once, at the first search.

A table is `category value: words; value: words`, with `_` for a space inside of a word; `0.. a b/c` counts values up
from 0, with `/` between words for one value. Categories: `days` from today, with a part of the day; `parts` of a day;
`units`; `numbers`, with a range for "a few"; `shift`, the last / this / next before a noun, and `after` behind it;
`years` and `week` with such a word; `weekday`, 0 is Monday; `month`; `season`, 0 is spring; `feast`; `quarter`. Words
around a date: `article`, `of` a month or year, `to` and `and` between two dates, `portion` of a period ("early"),
`relation` before a date ("since"), `relation_after` one, and `end` of a range.

A rule is `kind group=value | pattern`: `{category}` is any word of that table, `{category:words}` one of these. Values
are for groups that the pattern leaves out. In a language with spaces, a space is one to three white-space characters
and a match is of whole words. `grammar.py` has the kinds and the other names in braces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """Tables and rules of one language.

    Args:
        tables: category -> word -> value, both as text.
        rules: (kind, values of groups that the pattern leaves out, pattern).
        signs: for a language without spaces, characters of which one is in each of its dates.
        digits: pattern of a number that is no word.
    """

    tables: Mapping[str, Mapping[str, str]]
    rules: tuple[tuple[str, Mapping[str, str], str], ...]
    signs: frozenset[str] = frozenset()
    digits: str = ""


def _language(tables: str, rules: str, signs: str = "", digits: str = "[0-9]{1,4}") -> Language:
    """Build a language from the text of its tables and rules."""
    rows = []
    for line in filter(str.strip, rules.splitlines()):
        kind, pattern = line.strip().split(" | ", 1)
        name, *values = kind.split()
        rows.append((name, dict(value.split("=") for value in values), pattern))
    lines = re.sub(r"\n {6}", " ", tables).strip().replace(" | ", "\n").splitlines()
    split = (line.strip().split(" ", 1) for line in lines if line)
    return Language({name: _table(text) for name, text in split}, tuple(rows), frozenset(signs), digits)


def _table(text: str) -> dict[str, str]:
    """Parse "value: words; value: words"; "5.. words" numbers the words from 5 on."""
    found: dict[str, str] = {}
    for row in text.split("; "):
        value, _, words = row.rpartition(": ")
        if ".. " in row:
            first, words = row.split(".. ")
            slots = enumerate(words.split(), int(first))
            found |= {word: str(number) for number, slot in slots for word in slot.split("/")}
        else:
            found |= dict.fromkeys(words.split(), value)
    return {word.replace("_", " "): value for word, value in found.items()}


_DATES = r"""
    date | (?:{~article} )?(?:{first}(?:{~ordinal}|[.])?{~joint})?{d}(?:{~ordinal}|[.])?(?: {~of})? {month}[.]?{of_year}
    date | (?:{shift} )?{month}[.]? (?:the )?{d}(?:{~ordinal})?(?:{~joint}{last}(?! (?:of )?{~month}))?{of_year}
    date | (?:{shift} )?{month}[.]?{of_year}
    date | {years},?(?: in)? {month}
    """
_EUROPEAN = (
    _DATES
    + r"""
    days | {days}(?:(?: au)? {parts})?
    unit | {shift} {units:weekend week month year}(?:-ci)?
    unit | (?:{~article} ?)?{units:weekend week month year} {after}
    weekday | (?:{~article} )?(?:{shift} )?{weekday}(?: {after})?
    """
)
_HAN_DATES = r"""
    date | {y_or_years}(?:の|\s{1,2})?(?:{m}月(?!曜|份?[の ]?間)份?(?:の|\s{1,2})?(?:{d}[日号號])?|{feast}|{season})?
    date | (?<![0-9一二三四五六七八九十〇个個]){m}月(?!曜|份?[の ]?間)份?(?:\s{0,2}{d}[日号號])?
    date | {feast}
    unit units=weekend needs=preposition | (?:周末|週末)
    """
_HAN_DIGITS = "[0-9]{1,4}|[〇零一二两兩三四五六七八九十百]{1,5}"

ENGLISH = _language(
    r"""
    days -2: day_before_yesterday the_day_before_yesterday; -1: yesterday; -1 night: last_night; 0: today; 0 night:
      tonight; 0 morning: this_morning earlier_this_morning; 0 afternoon: this_afternoon earlier_this_afternoon; 0
      evening: this_evening earlier_this_evening; 1: tomorrow; 2: day_after_tomorrow the_day_after_tomorrow
    parts morning: morning; afternoon: afternoon; evening: evening; night: night
    units minute: minute minutes min mins; hour: hour hours; day: day days; week: week weeks; weekend: weekend weekends;
      month: month months; quarter: quarter quarters; year: year years; decade: decade decades
    numbers 1.. a/an/one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen; 20:
      twenty; 30: thirty; 40: forty; 50: fifty; 60: sixty; 90: ninety; 1-3: couple couple_of a_couple a_couple_of; 2-5:
      few few_of a_few a_few_of; 3-7: several several_of a_several
    shift -1: last previous past; 0: this current; 1: next coming following
    years -1: last_year previous_year; 0: this_year; 1: next_year | week -1: last_week; 0: this_week; 1: next_week
    weekday 0.. monday tuesday wednesday thursday friday saturday sunday | now now
    weekday_short 0.. mon tue/tues wed thu/thur/thurs fri sat sun
    month 1.. january/jan february/feb march/mar april/apr may june/jun july/jul august/aug september/sep/sept
      october/oct november/nov december/dec
    season 0.. spring summer autumn/fall winter
    feast christmas eve: christmas_eve; christmas day: christmas_day; christmas: christmas xmas; new year's eve:
      new_year's_eve new_years_eve; new year: new_year's_day new_year's; valentine's day: valentine's_day valentine's;
      halloween: halloween; thanksgiving: thanksgiving; easter: easter; spring festival: chinese_new_year lunar_new_year
    quarter 1.. q1/first_quarter/1st_quarter q2/second_quarter/2nd_quarter q3/third_quarter/3rd_quarter
      q4/fourth_quarter/4th_quarter/last_quarter
    article the | ordinal st nd rd th | of of | to to through thru till until up_to | and and | or or
    portion early: early early_in early_on beginning_of start_of; mid: mid middle_of; late: late late_in end_of; half1:
      first_half_of; half2: second_half_of; week: week_of
    relation since: since ever_since starting starting_in starting_on starting_from; after: after later_than; before:
      before prior_to earlier_than; until: until till up_to up_until by through; between: between; range: from; inside:
      in on during over throughout within at around back_in in_the_month_of; other: for of
    doubtful may march mar april june july august jan feb apr jun jul aug sep sept oct nov dec
    ordinary may march mar sept jan dec jun | possessive the our my your his her their this that
    counted dollars dollar euros euro pounds bucks usd eur people persons users words tokens characters lines pages rows
      items files steps times km kilometers kilometres miles meters metres feet m kg g mb gb kb calories hours days
      weeks months years minutes seconds ms messages points percent copies visitors members employees units pieces
      children students
    numbered version v release port page room line issue number no chapter id error code level section ticket order
      model pr bug rfc iso top about approximately roughly nearly almost over exactly least most than python windows
      office
    """,
    _DATES
    + r"""
    days | {days}(?: {parts})?
    rolling numbers=1 | (?:the |earlier |later )?past {units:hour day week month quarter year decade}
    rolling numbers=1 | (?:the |earlier |later )?last {units:hour}
    unit | (?:the |earlier |later )?{shift} {units:weekend week month year quarter decade}
    unit | the {units:weekend}
    unit shift=-2 | (?:the )?{units:weekend week month year} before last
    ago | {numbers} {units} ago
    ago ahead=yes | {numbers} {units} from now
    rolling | (?:the )?(?:last|past|previous) {numbers} {units}
    rolling ahead=yes | (?:the )?(?:next|coming) {numbers} {units}
    weekday | (?<!every\s)(?<!each\s)(?:{shift} )?{weekday}(?:(?: of)? {week})?(?: {parts})?
    weekday | {week}(?:'s)?,?(?: on)? {weekday}(?: {parts})?
    weekday | {shift:-1 1} {weekday_short}[.]?(?: {parts})?
    date | (?:{shift} )?{season}{of_year}
    date | (?:{shift} )?{feast}{of_year}
    date | (?:the )?{quarter}{of_year}
    ago numbers=1-7 | (?:the )?other {units:day}
    unit | (?:the )?{d}(?:st|nd|rd|th)? of {shift:-1 0 1} {units:month}
    days days=0 needs=partner | {now}
    """,
)
GERMAN = _language(
    r"""
    days -2: vorgestern; -1: gestern; 0: heute; 2: übermorgen
    parts morning: früh morgen; afternoon: nachmittag; evening: abend; night: nacht
    units hour: stunde stunden; day: tag tage tagen tages; week: woche wochen; weekend: wochenende wochenendes; month:
      monat monate monaten monats; year: jahr jahre jahren jahres jahrs
    numbers 1.. ein/eine/einem/einer zwei drei vier fünf sechs sieben acht neun zehn; 2-5: ein_paar einigen
    shift -1: letzte letzter letzten letztes letztem vorige voriger vorigen voriges vorigem vergangene vergangener
      vergangenen vergangenes vergangenem; 0: diese dieser diesen dieses diesem; 1: nächste nächster nächsten nächstes
      nächstem kommende kommender kommenden kommendes kommendem
    years -1: letzten_jahres vergangenen_jahres; 0: dieses_jahres; 1: nächsten_jahres
    weekday 0.. montag dienstag mittwoch donnerstag freitag samstag/sonnabend sonntag
    month 1.. januar/jänner februar märz april mai juni juli august september oktober november dezember
    article den dem der des die das | of von | to bis bis_zum bis_zur | and und | or oder
    portion early: anfang; mid: mitte; late: ende
    relation since: seit; after: nach; before: vor; until: bis bis_zum bis_zur; between: zwischen; range: von vom;
      inside: im am während; other: für
    doubtful mai april august juni juli | ordinary mai | counted tage wörter menschen jahre
    """,
    _EUROPEAN
    + r"""
    ago | vor {numbers} {units}
    rolling | (?:der |den |die )?(?:letzten?|vergangenen?) {numbers} {units}
    """,
)
FRENCH = _language(
    r"""
    days -2: avant-hier; -1: hier; 0: aujourd'hui; 1: demain
    parts morning: matin; afternoon: après-midi; evening: soir
    units hour: heure heures; day: jour jours; week: semaine semaines; weekend: week-end weekend; month: mois; year: an
      ans année années
    numbers 1.. un/une deux trois quatre cinq six sept huit neuf dix; 2-5: quelques | shift 0: ce cette
    after -1: dernier dernière derniere passé passée; 1: prochain prochaine
    years -1: l'année_dernière l'an_dernier; 0: cette_année
    weekday 0.. lundi mardi mercredi jeudi vendredi samedi dimanche
    month 1.. janvier février/fevrier mars avril mai juin juillet août/aout septembre octobre novembre décembre/decembre
    article la le les l' | ordinal er | of de | to au à jusqu'à | and et | or ou
    portion early: début début_de; late: fin fin_de
    relation since: depuis dès; after: après; before: avant; until: jusqu'à jusqu'en jusqu'au; between: entre; range: de
      du; inside: en au pendant; other: pour
    doubtful mars mai avril juin juillet | ordinary mars mai | counted personnes mots ans
    french je j ai a as avons avez nous vous tu elle il on ils elles que qu quoi le la les l du c est dit fait soir
    """,
    _EUROPEAN
    + r"""
    ago | il y a {numbers} {units}
    rolling | (?:les )?{numbers} (?:derniers|dernières) {units}
    """,
)
SPANISH = _language(
    r"""
    days -2: anteayer antier; -1: ayer; 0: hoy
    units hour: hora horas; day: día días dia dias; week: semana semanas; weekend: fin_de_semana; month: mes meses;
      year: año años
    numbers 1.. un/una dos tres cuatro cinco seis siete ocho nueve diez; 2-5: unos unas | shift 0: esta este
    after -1: pasado pasada anterior; 1: próximo próxima que_viene | years -1: año_pasado; 0: este_año
    weekday 0.. lunes martes miércoles jueves viernes sábado domingo
    month 1.. enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    article el los las la | ordinal º | of de del | to a al hasta | and y | or o
    portion early: principios_de; mid: mi mediados_de; late: finales_de
    relation since: desde; after: después_de después_del despues_de despues_del; before: antes_de antes_del; until:
      hasta; between: entre; inside: durante; other: para por
    doubtful marzo abril julio agosto | counted dólares personas palabras años
    """,
    _EUROPEAN
    + r"""
    ago | hace {numbers} {units}
    rolling | (?:los |las )?[uú]ltim[oa]s {numbers} {units}
    """,
)
ITALIAN = _language(
    r"""
    days -2: l'altro_ieri altroieri; -1: ieri; 0: oggi; 0 morning: stamattina; 0 evening: stasera; 1: domani; 2:
      dopodomani
    parts morning: mattina; afternoon: pomeriggio; evening: sera; night: notte
    units hour: ora ore; day: giorno giorni; week: settimana settimane; weekend: fine_settimana weekend; month: mese
      mesi; year: anno anni
    numbers 1.. un/uno/una due tre quattro cinque sei sette otto nove dieci; 2-5: qualche alcuni alcune pochi poche
    shift -1: scorso scorsa; 0: questo questa; 1: prossimo prossima
    after -1: scorso scorsa passato passata; 1: prossimo prossima
    years -1: l'anno_scorso dell'anno_scorso; 0: quest'anno
    weekday 0.. lunedì/lunedi martedì/martedi mercoledì/mercoledi giovedì/giovedi venerdì/venerdi sabato domenica
    month 1.. gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
    article il lo la i gli le l' | ordinal º | of di del | to a al fino_a fino_al | and e | or o
    portion early: inizio inizio_di; mid: metà metà_di; late: fine fine_di
    relation since: da dal; after: dopo; before: prima_di prima_del; until: fino_a fino_al entro; between: tra fra;
      inside: nel nello durante; other: per
    doubtful marzo aprile giugno luglio agosto | counted persone parole anni
    """,
    _EUROPEAN
    + r"""
    ago | {numbers} {units} fa
    rolling | (?:gli |le |i |negli |nelle |nei )?ultim[ei] {numbers} {units}
    """,
)
CHINESE = _language(
    r"""
    days -3: 大前天; -2: 前天; -1: 昨天 昨儿; -1 night: 昨晚 昨夜; -1 morning: 昨早; 0: 今天; 0 night: 今晚 今夜; 0
      morning: 今早; 1: 明天; 2: 后天 後天
    parts morning: 早上 上午 早 早晨; afternoon: 下午; night: 晚上 晚 夜里 夜
    units minute: 分 分钟 分鐘; hour: 小时 小時 钟头; day: 天 日; week: 周 週 星期 礼拜 禮拜; weekend: 周末 週末; month:
      月; year: 年
    numbers 2-5: 几 幾 数 好几 | week_name 周 週 星期 礼拜 禮拜 | shift -2: 上上; -1: 上; 0: 这 這 本; 1: 下
    years -3: 大前年; -2: 前年; -1: 去年; 0: 今年; 1: 明年 | weekday 0.. 一 二 三 四 五 六 日/天
    season 0.. 春/春天/春季 夏/夏天/夏季 秋/秋天/秋季 冬/冬天/冬季
    feast christmas: 圣诞节 聖誕節 圣诞 聖誕; new year: 元旦; spring festival: 春节 春節 过年; national day: 国庆节
      國慶節 国庆 國慶
    to 到 至 | and 和 与 與 跟 | or 和 或 | portion early: 初 上旬 头 頭; mid: 中旬; late: 下旬 底 末
    relation until: 截至 截止 截止到 到; range: 自从 自從 从 從 自; inside: 在 于 於
    relation_after since: 以来 以來 以后 以後 之后 之後 起 开始 開始; before: 以前 之前 前; until: 为止 為止
    end between: 之间 之間; until: 为止 為止
    """,
    r"""
    days | (?<![以之目]){days}(?!天)(?:\s?の?{parts})?
    unit | (?<![日基](?=本)){shift}(?:个|個)?{units:weekend week}
    weekday units=week | (?<![日基](?=本)){shift}(?:个|個)?{~week_name}{weekday}(?![年个個月起直些样樣次位共定般本元])
    unit units=month | (?<![日基](?=本)){shift}(?:个|個)?月(?:的?{d}[日号號])?
    ago | {numbers}(?!月)(?:个|個)?{units}(?:以|之)?前
    rolling | (?:最近|过去|過去|(?<!附)近|(?<![以之目])前|这|這){numbers}(?:个|個)?{units}(?!前)
    weekday | (?<![每毎]){~week_name}{weekday}(?!年|个|個|月)
    """
    + _HAN_DATES,
    "年月日天周週期拜晚夜前昨今明后後春节節诞誕庆慶旦末",
    _HAN_DIGITS,
)
JAPANESE = _language(
    r"""
    days -2: 一昨日 おととい; -1: 昨日 きのう; -1 night: 昨晩 昨夜; 0: 今日; 0 night: 今晩 今夜; 0 morning: 今朝; 1:
      明日; 2: 明後日
    parts morning: 朝; afternoon: 午後; night: 夜 夕方
    units minute: 分; hour: 時間; day: 日; week: 週間 週; weekend: 週末; month: ヶ月 か月 カ月 ヵ月 箇月; year: 年 年間
    shift -2: 先々; -1: 先; 0: 今; 1: 来 來 | years -2: 一昨年 おととし; -1: 昨年 去年; 0: 今年; 1: 来年 來年
    weekday 0.. 月 火 水 木 金 土 日 | season 0.. 春 夏 秋 冬
    feast christmas: クリスマス; new year: 元日; spring festival: 旧正月 | to から | and と | or と
    portion early: 初 初め はじめ; mid: 半ば; late: 末
    relation_after since: 以降 からずっと から; before: より前 の前; until: まで | end between: の間 間; until: まで
    """,
    r"""
    days | (?<![以之目]){days}(?!天)(?:\s?の?{parts})?
    unit | {shift}{units:weekend week}
    weekday units=week | {shift}週(?:の?{weekday}曜日?)
    unit units=month | {shift}月(?:の?{d}日)?
    ago | {numbers}(?!月){units}(?:以|之)?前
    rolling | (?:最近|過去|ここ|この|直近)の?{numbers}{units}間?(?!前)
    weekday | (?<![每毎]){weekday}曜日?
    """
    + _HAN_DATES,
    "年月日週曜晩夜前近今明夏春秋冬おきクこ直",
    _HAN_DIGITS,
)
KOREAN = _language(
    r"""
    days -2: 그저께 그제 엊그제; -1: 어제; -1 night: 어젯밤; 0: 오늘; 1: 내일; 2: 모레
    parts morning: 아침 오전; afternoon: 오후; night: 저녁 밤
    units minute: 분; hour: 시간; day: 일; week: 주 주일; weekend: 주말; month: 달 개월; year: 년 해
    numbers 1.. 한/하나 두 세 네 다섯 여섯 일곱 여덟 아홉 열; 2-5: 몇 며
    counted_days 1.. 하루 이틀 사흘 나흘; 10: 열흘; 15: 보름; 2-5: 며칠
    shift -2: 지지난; -1: 지난 저번; 0: 이번; 1: 다음 | years -2: 재작년; -1: 작년 지난해; 0: 올해 금년; 1: 내년
    weekday 0.. 월 화 수 목 금 토 일 | season 0.. 봄 여름 가을 겨울 | feast christmas: 크리스마스; new year: 새해
    to 부터 | and 와 과 | or 또는 | portion early: 초(?!등); mid: 중순; late: 하순 말
    relation_after since: 이후 부터 이래; before: 이전 전(?:에)?(?!\w); until: 까지 | end between: 사이; until: 까지
    """,
    r"""
    days | {days}(?:\s?{parts})?
    unit units=week | {shift}\s?주
    unit units=weekend | {shift}\s?주\s?말
    unit shift=0 units=week | 금주
    weekday units=week | {shift}\s?주\s{0,2}{weekday}요일
    unit units=month | {shift}\s?달(?:\s?{d}일)?
    ago | (?:{counted_days}|{numbers}\s?{units})\s?전
    rolling | (?:최근|지난)\s?(?:{counted_days}|{numbers}\s?{units})(?:간|\s?동안)?
    weekday | (?<!매){weekday}요일
    date | {y_or_years}(?:\s{1,2})?(?:{m}월(?:\s{1,2})?(?:{d}일)?|{feast}|{season})?
    date | (?<![0-9]){m}월(?:\s{0,2}{d}일)?
    date | {feast}
    unit units=weekend needs=preposition | 주말
    """,
    "년월일주제께달간전늘밤해봄름을울내모크말",
)
DIGITS = _language(
    "",
    r"""
    date | (?P<y>[12][0-9]{3})(?P<s>[-/.])(?P<m>[01]?[0-9])(?P=s){d}(?:[t ][0-2][0-9]:[0-5][0-9]{seconds})?
    date | (?P<m>[0-3]?[0-9])(?P<s>[/.]){d}(?P=s)(?P<y>[12][0-9]{3})
    date | (?P<y>[12][0-9]{3})-(?P<m>[01][0-9])
    date | (?P<m>[01]?[0-9])/(?P<y>[12][0-9]{3})
    years | {year}\s{0,2}-\s{0,2}(?P<y2>19[0-9]{2}|20[0-9]{2}|2100)
    years | (?:(?:the )?(?P<word>year|jahr|año|l'année|l'anno) )?{year}
    years | (?:the )?(?P<decade>1[0-9]{2}0|20[0-9]0)'?s
    years | the '?(?P<decade>[5-9]0)'?s
    """,
)
LANGUAGES = (ENGLISH, GERMAN, FRENCH, SPANISH, ITALIAN, CHINESE, JAPANESE, KOREAN)
