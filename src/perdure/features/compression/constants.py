"""Every threshold of the compression of tool output, in one table. Changing one changes the bytes of new results only.

Stored results keep the text that they were given.
"""

import re

LEAST_CHARS = 400
"""Shorter texts stay: a header costs more than it saves."""
LOSSLESS_SHARE = 0.95
"""An encoding is used if it has at most this share of the text's estimated tokens and of its characters. The margin
covers what the estimate is wrong by, so that no tokenizer counts more."""

SURE_SHARE, SURE_SHARE_JSON = 0.7, 0.9
"""A form with at most this share of the text's characters has fewer tokens, so they are not counted: it has the same
words and repeats fewer. JSON loses spaces and signs only."""
SAMPLES, SAMPLE_CHARS = 16, 1_000
"""The tokens of a longer text are estimated from so many samples of so many characters."""

BUDGET_SHARE = 0.45
"""The share of its own tokens above which a result is shortened under level `full`, if no budget is given."""
ROOM_SHARE = 0.6
"""The share that the shortened form may have, so that what identifies the rows is kept where it can be."""
BUDGET_LEAST = 6_000
"""No result is shortened below this many tokens, if no budget is given."""

BUDGET_FLOOR, EXCERPT_FLOOR = 600, 300
"""A smaller budget counts as the first for the form of a known kind, and as the second for pieces of the text."""
OUTLINE = re.compile(
    r"#{1,6} |diff |@@|\s*(?:def|class|async|export|func|fn|pub|package|struct|impl|type|interface|module|enum|trait)\b"
)
"""What is shown first of source, diffs and Markdown, but for errors and what stands out."""
PART_LIMITS = 24, 400
"""A long line is parted into pieces of so many characters, by the budget."""
ITEM_LIMITS = 200, 1_200
"""An item of a JSON list is a piece up to so many characters, by the budget; of a larger one, each value is."""
FEW_PIECES, FEW_SHARE = 20, 0.02
"""What is without a form, or stands out, comes before repeated errors if it is so much, or so much of the pieces."""

PROSE_BUDGET = 20_000
"""The same for texts that do not repeat a form: pages, source, diffs, Markdown."""

ROWS_LEAST = 3
"""So many objects of one shape are a table."""
MAP_LEAST = 5
"""So many objects under keys of one object are a table."""
SPARSE_SHARE, SPARSE_COLUMNS = 0.7, 30
"""Objects are no table if more than this share of its cells, in more than so many columns, would be empty."""
LIST_WIDTH = 4
"""Lists of one length up to this, in every row, become columns."""
DEFAULT_SHARE = 0.4
"""A value that so many cells of a column have is written once, as what an empty cell means."""
ABOVE_SHARE = 0.5
"""Cells are written without what they share with the cell above if so many of them share it."""
TERM_CHARS, TERM_SHARE = 12, 0.5
"""Cells of this average length, of which at most this share are different, are numbered in a list."""
TEXT_CHARS = 400
"""A string of a JSON document that is longer than this is compressed as a text of its own."""

MATRIX_WIDTH = 30
"""Lists of lists are a table up to this width."""
PART_CHARS = 300
"""JSON between other lines is a part of its own from this length on."""

TEMPLATE_LINES = 3
"""So many lines of one form have a template."""
TEMPLATE_CHARS = 40
"""A template saves at least so many characters."""
VARIED_SHARE = 0.3
"""A word of a line is a parameter if it has digits, or if more than this share of its form's lines differ in it."""

SIGMAS = 2.0
"""A number is an outlier if it is more standard deviations from the mean."""
RARE_SHARE = 0.005
"""A value is rare if it is at most this share of a column's (or occurs once) and the column repeats its values."""
RARE_SIGMAS = 5.0
"""A rare value stands out as much as a number so many deviations from the mean."""
RARE_DISTINCT = 0.2
"""A column repeats its values if at most this share of them are different."""
CHANGE_WINDOW = 8
"""A change point: the means of so many numbers before and after differ by more than `SIGMAS` deviations."""
EDGE_ROWS = 3
"""So many first and last items are always shown."""
INDEX_UNIQUE = 0.9
"""A column identifies rows if this share of its values is different."""
INDEX_CHARS = 48
"""Longer values identify nothing."""
INDEX_PER_LINE = 10
"""The identifying values of so many rows stand on one line."""
CONTEXT_LINES = 2
"""So many lines before and after an error are shown."""
EXPAND_TOKENS = 1_000
"""The most tokens of one answer about an original, if no other number is given."""

ERROR = re.compile(
    r"(?i:\berr(?:or|no)?s?\b|error(?![-_ ]?free)|exception|traceback|\bfail(?:ed|ure|ures|s|ing)?\b|\bfatal|\bpanic"
    r"|critical|\bemerg|\balert\b|segfault|\babort|\bdenied|\brefused|\brejected|unreachable|timed?[ _-]?out"
    r"|\bkilled\b|\boom\b|out of memory|corrupt|\bundefined\b|unhealthy|not healthy|crash|dispute|overdue|violat"
    r"|unexpected|invalid|mismatch|\blost\b|unauthori[sz]ed|forbidden|deadlock|roll(?:ed)?[ _-]?back)"
    r"|\b[EF]\d{4}\b"
)
"""What makes a line or cell an error: these words, and the codes of Kubernetes' logs."""
_COUNTED = r"(?:err(?:or)?s?|exceptions?|fail(?:ed|ures?|s)?|fatals?|panics?|crash(?:es|ed)?|lost|killed|unreachable)"
NO_ERROR = re.compile(
    rf"(?i)(?<![\w.,])(?:0|no|zero|without)(?: any)?[ _-]{_COUNTED}\b(?! [a-z]+ (?:found|defined))"
    rf"|\b{_COUNTED}[\"']?\s?[:=]\s?[\"']?(?:0|null|none|nil|false)\b(?=[\"']?\s*(?:$|[,;|\])}}>/]|\S+[:=]))"
    r"|\b(?:errors|failures|failed|lost) {1,3}0(?![\w.,])"
)
"""What only says that there is no error: `0 failed`, `errors=0`, `without errors`."""
ERROR_ROOTS = (
    *("err", "excep", "traceback", "fail", "fatal", "panic", "critical", "emerg", "alert", "segfault", "abort"),
    *("denied", "refused", "reject", "unreach", "tim", "kill", "oom", "memory", "corrupt", "undefined", "health"),
    *("crash", "dispute", "overdue", "violat", "unexpected", "invalid", "mismatch", "lost", "unauthori", "forbidden"),
    *("deadlock", "roll"),
)
"""A part of each word of `ERROR`: a text with none of them, and no code, has no error."""
