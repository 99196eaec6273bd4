"""What a patch written by a language model does to the text of one memory block."""

from __future__ import annotations

import difflib
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core.errors import PatchInvalid, ToolError
from perdure.core.text.line_diff import unified_diff
from perdure.domain.blocks.patches import apply_patch
from tests.support.cases import for_each
from tests.support.strategies import effort

TEXT = "# Name\nAda\n\n# Likes\n- tea\n- chess\n\n# Open\n- tea"


def lines_of(*lines: str) -> str:
    return "\n".join(lines)


def refusal(text: str, patch: str) -> str:
    """The message with which the patch is refused."""
    with pytest.raises(PatchInvalid) as caught:
        apply_patch(text, patch)
    return str(caught.value)


# -- laws --------------------------------------------------------------------------------------------------------------

# Lines that look like headers, markers and prefixes are the ones a parser gets wrong.
LINES = st.one_of(
    st.text(alphabet="ab -+@\\*", max_size=4),
    st.sampled_from(
        ["", " ", "-- a", "++ b", "@@ -1 +1 @@", "*** End Patch", "*** Update File: a", "```", "diff --git"]
    ),
)
TEXTS = st.lists(LINES, max_size=9).map("\n".join)


def as_lines(text: str) -> list[str]:
    """`""` is no line at all: its list of lines and the one of a single empty line make the same text."""
    return text.split("\n") if text else []


@given(TEXTS, TEXTS, st.integers(0, 3))
@example("", "\n", 3)
@example("a", "", 0)
@example("-- a\nx\ny", "++ b\nx\nz", 0)
def test_a_unified_diff_of_two_texts_turns_one_into_the_other(before: str, after: str, context: int) -> None:
    """What difflib says lies between two texts is what the patch does, for any amount of context."""
    patch = "\n".join(difflib.unified_diff(as_lines(before), as_lines(after), lineterm="", n=context))

    if before == after:
        assert "empty" in refusal(before, patch)
    else:
        assert apply_patch(before, patch) == after


@given(TEXTS, TEXTS)
@example("", "a")
@example("a", "")
def test_the_stored_diff_of_an_edit_repeats_the_edit(before: str, after: str) -> None:
    """A diff as kept with a block's version, which takes the empty text for one empty line, fits the old value."""
    if before != after:
        assert apply_patch(before, unified_diff(before, after)) == after


@given(TEXTS, TEXTS, st.integers(0, 3), st.integers(1, 40))
def test_wrong_line_numbers_do_no_harm_when_every_line_is_unique(
    before: str, after: str, context: int, shift: int
) -> None:
    """A hunk with old lines goes where those are, wherever its numbers point."""
    old, new = ([f"{n} {line}" for n, line in enumerate(as_lines(text))] for text in (before, after))
    diff = list(difflib.unified_diff(old, new, lineterm="", n=context))
    shifted = [re.sub(r"^@@ -(\d+)", lambda m: f"@@ -{int(m[1]) + shift}", line) for line in diff]

    if old != new and not any(re.match(r"@@ -\d+,0 ", line) for line in diff):
        assert apply_patch("\n".join(old), "\n".join(shifted)) == "\n".join(new)


def test_lines_may_follow_the_one_empty_line_of_an_empty_text() -> None:
    """Numbers that count the empty text as a line keep it; all others begin the text."""
    assert apply_patch("", "@@ -1,0 +2 @@\n+a") == "\na"
    assert apply_patch("", unified_diff("", "\na")) == "\na"
    assert apply_patch("", "@@ -0,0 +1 @@\n+a") == "a"
    assert apply_patch("", "@@ -1,0 +1 @@\n+a") == "a"


PATCH_LINES = st.one_of(
    LINES,
    LINES.map(" ".__add__),
    LINES.map("-".__add__),
    LINES.map("+".__add__),
    st.sampled_from(
        [
            "@@",
            "@@ a",
            "@@ -1,2 +1 @@",
            "@@ -0,0 +1 @@",
            "@@ -9,0 +1 @@",
            "--- a",
            "+++ a",
            "*** Begin Patch",
            "*** End of File",
            "*** Add File: a",
            "\\ No newline at end of file",
            "```diff",
            "```",
            "index 0a..1b",
            "\r",
        ]
    ),
)


@effort(100, 3_000)
@given(TEXTS, st.one_of(st.lists(PATCH_LINES, max_size=10).map("\n".join), st.text()))
def test_anything_sent_as_a_patch_is_applied_or_refused(text: str, patch: str) -> None:
    """No input makes another error than PatchInvalid, and the outcome is the same every time."""
    try:
        patched = apply_patch(text, patch)
    except PatchInvalid as refused:
        assert refusal(text, patch) == str(refused)
    else:
        assert patched != text
        assert apply_patch(text, patch) == patched


def many_hunks(lines: int) -> tuple[str, str]:
    text = [f"line {n}" for n in range(lines)]
    return "\n".join(text), "\n".join(f"@@\n-{line}\n+x" for line in text[::3])


def many_anchors(lines: int) -> tuple[str, str]:
    text = [f"line {n}." for n in range(lines)]
    return "\n".join(text), "\n".join(f"@@ {line[2:]}\n+x" for line in text[::3])


def all_alike(lines: int) -> tuple[str, str]:
    return "\n".join(["a"] * lines), "\n".join(["@@ -99999 +1 @@", "-b", *["-a"] * (lines - 2)])


def all_alike_backwards(lines: int) -> tuple[str, str]:
    return "\n".join(["a"] * lines), "\n".join(["@@ -99999 +1 @@", *["-a"] * (lines - 2), "-b"])


def hints_that_miss(lines: int) -> tuple[str, str]:
    return "\n".join(["a", "b"] * (lines // 2)), "\n".join("@@ -1 +1 @@\n-a\n+c" for _ in range(lines // 8))


def noise(lines: int) -> tuple[str, str]:
    dice = random.Random(7)
    text = [dice.choice("ab") for _ in range(lines)]
    hunks = (text[start : start + 40] for start in range(0, lines - 40, 60))
    return "\n".join(text), "\n".join("\n".join(["@@", "+x", *(f" {line}" for line in hunk)]) for hunk in hunks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (many_hunks, 9_000),
        (many_anchors, 9_000),
        (all_alike, 50_000),
        (all_alike_backwards, 50_000),
        (hints_that_miss, 50_000),
        (noise, 50_000),
    ],
)
def test_a_hundred_thousand_characters_take_seconds_at_most(make: Callable[[int], tuple[str, str]], lines: int) -> None:
    """Time grows with the sizes of text and patch, not with their product, whatever repeats in them."""
    text, patch = make(lines)
    start = time.process_time()
    with suppress(PatchInvalid):
        apply_patch(text, patch)

    assert time.process_time() - start < 20  # at most 1 s here; the quadratic way takes minutes


# -- unified diff ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        lines_of("--- a/human", "+++ b/human", "@@ -5,2 +5,2 @@ # Likes", " - tea", "-- chess", "+- go"),
        lines_of(
            "diff --git a/h b/h", "index 0a1b..2c3d 100644", "--- a/h", "+++ b/h", "@@ -6 +6 @@", "-- chess", "+- go"
        ),
        lines_of("--- human", "@@ -6 +6", "-- chess", "+- go"),
        lines_of("@@", "-- chess", "+- go"),
        lines_of("@@ ... @@", "-- chess", "+- go", ""),
        lines_of("-- chess", "+- go"),
        lines_of("```diff", "@@ -6 +6 @@", "-- chess", "+- go", "```"),
        lines_of("", "~~~", "@@", "-- chess", "+- go", "", "~~~", ""),
        "--- a\r\n+++ b\r\n@@ -6 +6 @@\r\n-- chess\r\n+- go\r\n",
        lines_of(
            "@@ -6,2 +6,2 @@", "-- chess", "\\ No newline at end of file", "+- go", "\\ No newline at end of file"
        ),
    ],
)
def test_every_way_to_write_a_unified_diff_is_read(patch: str) -> None:
    """Headers, numbers, fences and line ends may be there or not."""
    assert apply_patch(TEXT, patch) == TEXT.replace("chess", "go")


def test_a_blank_line_in_a_hunk_is_an_empty_kept_line() -> None:
    """A model that forgets the space of an empty kept line is understood."""
    patched = apply_patch(TEXT, lines_of("@@", " Ada", "", "-# Likes", "+# Loves"))

    assert patched == TEXT.replace("Likes", "Loves")


def test_blank_lines_between_hunks_are_layout() -> None:
    """Blank lines before the next header ask for no empty line in the text."""
    patched = apply_patch("a\nb", lines_of("@@", "-a", "+A", "", "", "@@", "-b", "+B", "", ""))

    assert patched == "A\nB"


def test_a_line_number_chooses_among_equal_lines() -> None:
    """Of two places that fit, the one the hunk's number names is changed, else the nearest."""
    at_5 = apply_patch(TEXT, lines_of("@@ -5 +5 @@", "-- tea", "+- mate"))
    near_9 = apply_patch(TEXT, lines_of("@@ -8 +8 @@", "-- tea", "+- mate"))

    assert at_5.split("\n")[4] == "- mate" and at_5.endswith("- tea")
    assert near_9.split("\n")[4] == "- tea" and near_9.endswith("- mate")


def test_a_wrong_line_number_is_forgiven_when_one_place_fits() -> None:
    """Line numbers are hints, even far outside the text."""
    assert apply_patch("a\nb", lines_of("@@ -70,1 +0,3 @@", "-b", "+B")) == "a\nB"


def test_a_hunk_is_looked_for_below_the_one_before() -> None:
    """The same lines twice in a patch are the first place and then the second."""
    patched = apply_patch("x\na\ny\na", lines_of("@@", " x", "-a", "+b", "@@", "-a", "+c"))

    assert patched == "x\nb\ny\nc"


def test_hunks_may_share_their_kept_lines() -> None:
    """The last kept line of one hunk may be the first of the next."""
    patch = lines_of("@@ -1,2 +1,2 @@", "-a", "+A", " b", "@@ -2,2 +2,2 @@", " b", "-c", "+C")

    assert apply_patch("a\nb\nc", patch) == "A\nb\nC"
    assert apply_patch("a\nb\nc", re.sub("@@.*", "@@", patch)) == "A\nb\nC"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("@@ -0,0 +1 @@", "new\na\nb"),
        ("@@ -1,0 +2 @@", "a\nnew\nb"),
        ("@@ -2,1 +2,2 @@", "a\nnew\nb"),
        ("@@ -2,0 +3 @@", "a\nb\nnew"),
        ("@@ -3,0 +3 @@", "a\nb\nnew"),
        ("@@ -3 +3 @@", "a\nb\nnew"),
        ("@@", "a\nb\nnew"),
    ],
)
def test_added_lines_alone_go_to_their_number_or_to_the_end(header: str, expected: str) -> None:
    """`-l,0` is after line l, `-l` is at line l, one too far is the end, and so is a bare `@@`."""
    assert apply_patch("a\nb", lines_of(header, "+new")) == expected


def test_appending_keeps_a_trailing_newline_last() -> None:
    """A text that ends with a newline still does after an addition at its end."""
    assert apply_patch("a\n", "@@\n+b") == "a\nb\n"
    assert apply_patch("a", "@@\n+b") == "a\nb"


@pytest.mark.parametrize(
    "patch",
    [
        "@@ -0,0 +1,2 @@\n+a\n+b",
        "--- /dev/null\n+++ b/human\n@@ -1,0 +1,2 @@\n+a\n+b",
        "@@\n+a\n+b",
        "@@ -1 +1,2 @@\n-\n+a\n+b",
    ],
)
def test_an_empty_block_gets_its_first_lines(patch: str) -> None:
    """Whatever the header says, the added lines are the text, without an empty line before or after."""
    assert apply_patch("", patch) == "a\nb"


def test_removing_every_line_leaves_the_empty_text() -> None:
    """A block may be emptied by a patch, also one of nothing but a newline."""
    assert apply_patch("a\nb", "--- a/human\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b") == ""
    assert apply_patch("\n", "@@ -1,2 +0,0 @@\n-\n-") == ""


def test_white_space_at_the_end_of_lines_is_ignored_when_nothing_fits_exactly() -> None:
    """Kept lines stay as the text has them, not as the patch has them."""
    assert apply_patch("a  \nb\t\nc", lines_of("@@", " a", "-b", "+B", " c ")) == "a  \nB\nc"


def test_an_exact_fit_goes_before_one_that_ignores_white_space() -> None:
    """Even a nearer place is not taken when it fits only without its trailing white space."""
    assert apply_patch("a \nx\na", lines_of("@@ -1 +1 @@", "-a", "+b")) == "a \nx\nb"


def test_no_newline_below_the_added_line_takes_the_trailing_newline_away() -> None:
    """The marker is heeded on the new side, and for a text without that newline it says nothing new."""
    patch = lines_of("@@ -2 +2 @@", "-b", "+B", "\\ No newline at end of file")

    assert apply_patch("a\nb\n", patch) == "a\nB"
    assert apply_patch("a\nb", patch) == "a\nB"
    assert apply_patch("a\nb\nc", patch) == "a\nB\nc"


def test_no_newline_below_the_removed_line_adds_one_only_as_the_sole_change() -> None:
    """A forgotten second marker does not leave an empty line behind."""
    marker = "\\ No newline at end of file"

    assert apply_patch("a\nb", lines_of("@@ -2 +2 @@", "-b", marker, "+b")) == "a\nb\n"
    assert apply_patch("a\nb", lines_of("@@ -2 +2 @@", "-b", marker, "+B")) == "a\nB"


def test_lines_that_look_like_file_headers_are_text_while_the_numbers_await_lines() -> None:
    """`--- x` in a hunk removes `-- x`, and `+++ y` adds `++ y`."""
    patch = lines_of("@@ -1 +1 @@", "--- x", "+++ y", "@@ -3 +3 @@", "-c", "+C")

    assert apply_patch("-- x\nb\nc", patch) == "++ y\nb\nC"


def test_the_header_of_the_one_file_may_be_repeated() -> None:
    """Some models write the file header before each hunk."""
    header = ("--- a/human", "+++ b/human")

    assert apply_patch("a\nb", lines_of(*header, "@@", "-a", "+A", *header, "@@", "-b", "+B")) == "A\nB"


# -- Codex -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        lines_of(
            "*** Begin Patch", "*** Update File: human", "@@ # Likes", " - tea", "-- chess", "+- go", "*** End Patch"
        ),
        lines_of("*** Begin Patch", "*** Update File: human", " - tea", "-- chess", "+- go", "*** End Patch", ""),
        lines_of("*** Update File: human", "", "@@", "-- chess", "+- go"),
        lines_of("*** Begin Patch", "@@", "-- chess", "+- go"),
        lines_of("@@ # Likes", "-- chess", "+- go", "*** End Patch"),
        lines_of("```", "*** Begin Patch", "*** Update File: human", "@@", "-- chess", "+- go", "*** End Patch", "```"),
        lines_of("*** Update File: human", "--- a/human.md", "+++ b/human.md", "@@ -6 +6 @@", "-- chess", "+- go"),
    ],
)
def test_every_way_to_write_a_codex_patch_is_read(patch: str) -> None:
    """Markers around the sections may be there or not."""
    assert apply_patch(TEXT, patch) == TEXT.replace("chess", "go")


def test_an_anchor_makes_it_the_first_place_below() -> None:
    """Of two places that fit, the first one below the line after `@@` is changed."""
    in_likes = apply_patch(TEXT, lines_of("@@ # Likes", "-- tea", "+- mate"))
    in_open = apply_patch(TEXT, lines_of("@@ Open", "-- tea", "+- mate"))

    assert in_likes.split("\n")[4] == "- mate" and in_likes.endswith("- tea")
    assert in_open.split("\n")[4] == "- tea" and in_open.endswith("- mate")


def test_an_anchor_equal_to_a_line_goes_before_one_contained_in_it() -> None:
    """A line that merely contains the anchor is used only when no line is the anchor."""
    assert apply_patch("# AB\nx\n # A\nx", lines_of("@@ # A", "-x", "+y")) == "# AB\nx\n # A\ny"


def test_anchors_may_be_nested() -> None:
    """A second `@@` line is looked for below the first."""
    text = "# A\n## todo\nx\n# B\n## todo\nx"

    assert apply_patch(text, lines_of("@@ # B", "@@ ## todo", "-x", "+y")) == text[:-1] + "y"


def test_an_anchor_may_be_repeated() -> None:
    """As the first kept line of its own hunk, or again by the next hunk below the same line."""
    assert apply_patch("# A\nx\ny", lines_of("@@ # A", " # A", "-x", "+X", "@@ # A", "-y", "+Y")) == "# A\nX\nY"


def test_added_lines_alone_go_directly_below_their_anchor() -> None:
    """An anchor says where, without any kept line; two additions stay in their order."""
    assert (
        apply_patch("# A\nx\n# B", lines_of("@@ # A", "+1", "@@ # A", "+2", "@@ # B", "+3")) == "# A\n1\n2\nx\n# B\n3"
    )


def test_end_of_file_chooses_the_last_place() -> None:
    """The marker is a hint like a line number, also for a text with a trailing newline."""
    patch = lines_of("*** Update File: human", "@@", "-a", "+b", "*** End of File")

    assert apply_patch("a\na", patch) == "a\nb"
    assert apply_patch("a\na\n", patch) == "a\nb\n"
    assert apply_patch("a\nx", lines_of("@@ a", "+y", "*** End of File")) == "a\nx\ny"


def test_add_file_writes_the_text_of_an_empty_block() -> None:
    """Every added line is the text; a blank line between them is an empty line of it."""
    patch = lines_of("*** Begin Patch", "*** Add File: human", "+# Name", "", "+Ada", "+", "", "*** End Patch")

    assert apply_patch("", patch) == "# Name\n\nAda\n"


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refusal_is_for_the_model_to_read() -> None:
    """A patch that does not fit is an error of the tool, not of the run."""
    assert issubclass(PatchInvalid, ToolError)


def test_nothing_is_applied_when_one_hunk_does_not_fit() -> None:
    """The message names the hunk and the first line that is not there."""
    message = refusal(TEXT, lines_of("@@", "-Ada", "+Eve", "@@ -4,2 +4,2 @@", " # Likes", "-- Tea", "+- mate"))

    assert message == (
        "hunk 2 does not fit: line 6 of the patch, '- Tea', is not in the block."
        " Copy the lines to keep and to remove exactly as they stand in the block, white space included."
    )


DIFF = ("--- a", "+++ a")
REFUSALS = {
    "empty": (TEXT, " \r\n\n", "the patch is empty: send"),
    "no changed line": (TEXT, "@@\n Ada", "changes nothing: it has no line that begins with '-' or '+'"),
    "headers only": (TEXT, "--- a\n+++ b", "changes nothing: it has no line"),
    "empty fence": (TEXT, "```diff\n```", "changes nothing: it has no line"),
    "same afterwards": (TEXT, "@@\n-Ada\n+Ada", "changes nothing: the block would be the same"),
    "an empty line into nothing": ("", "@@\n+", "changes nothing: the block would be the same"),
    "prose": (
        TEXT,
        "Here is it:\n@@\n-Ada",
        "line 1 of the patch, 'Here is it:', can't be read: in a hunk a line begins",
    ),
    "no prefix": (TEXT, "@@\n-Ada\nEve", "line 3 of the patch, 'Eve', can't be read"),
    "line numbers count the fence": (TEXT, "```\n@@\nEve\n```", "line 3 of the patch, 'Eve'"),
    "hunk without lines": (TEXT, "@@\n-Ada\n@@ -3 +3 @@\n\n@@\n+x", "hunk 2 of the patch has no lines"),
    "hunk without lines at the end": (TEXT, "@@\n-Ada\n@@ Ada", "hunk 2 of the patch has no lines"),
    "two files": (
        TEXT,
        "--- a\n+++ a\n@@\n-Ada\n--- b\n+++ b\n@@\n+x",
        "more than one file, 'a' and 'b': one call edits",
    ),
    "two files of git": (TEXT, "diff --git a/a b/a\n@@\n-Ada\ndiff --git a/b b/b\n@@\n+x", "more than one file"),
    "two files of Codex": (TEXT, "*** Update File: a\n-Ada\n*** Update File: b\n+x", "more than one file, 'a' and 'b'"),
    "delete": (
        TEXT,
        "*** Delete File: a",
        "line 1 of the patch, '*** Delete File: a', can't be done: a patch deletes no block, it can remove all",
    ),
    "move": (
        TEXT,
        "*** Update File: a\n*** Move to: b\n-Ada",
        "'*** Move to: b', can't be done: a patch renames no block. Leave",
    ),
    "unknown marker": (TEXT, "*** Insert: a", "'*** Insert: a', is not a marker known here: there are '*** Begin"),
    "text after the end": (TEXT, "@@\n-Ada\n*** End Patch\n\n+x", "line 5 of the patch, '+x', stands after '*** End"),
    "marker after the end": (
        TEXT,
        "-Ada\n*** End Patch\n*** Update File: a",
        "line 3 of the patch, '*** Update File: a'",
    ),
    "add to text": (TEXT, "*** Add File: a\n+x", "for an empty block, and this one has text: use '*** Update File'"),
    "add with kept line": ("", "*** Add File: a\n x", "' x', does not belong under '*** Add File': there every line"),
    "add with section": ("", "*** Add File: a\n@@\n+x", "'@@', does not belong under '*** Add File'"),
    "several places": (
        TEXT,
        "@@\n-- tea",
        "hunk 1 fits in more than one place, such as lines 5 and 9 of the block. Add",
    ),
    "equally near places": ("a\nx\na", "@@ -2 +2 @@\n-a", "more than one place, such as lines 1 and 3"),
    "several places but for white space": ("a \nx\na ", "@@\n-a", "more than one place, such as lines 1 and 3"),
    "several places below several anchors": (
        "# A\nx\n# A\nx",
        "@@ # A\n-x",
        "more than one place, such as lines 2 and 4",
    ),
    "not in an empty block": ("", "@@\n-a\n+b", "the block is empty, so 'a' is not in it. To write its first lines"),
    "wrong order": (
        "a\nb",
        "@@\n-b\n+B\n@@\n-a\n+A",
        "its lines stand at line 1 of the block, above the end of the hunk or",
    ),
    "above its anchor": ("x\n# A", "@@ # A\n-x", "its lines stand at line 1 of the block, above"),
    "line elsewhere": ("b\na\nc", "@@\n a\n-b", "line 3 of the patch, 'b', does not follow 'a' in the block"),
    "line above": ("b\na\nx", "@@\n-a\n@@\n-b\n+c\n-x", "line 4 of the patch, 'b', is not in the block below line 2"),
    "other indent": (
        "  - a\nb",
        "@@\n-- a\n+x",
        "'- a', is not in the block; line 1 there differs in white space: '  - a'",
    ),
    "unknown anchor": (
        TEXT,
        "@@ # Hates\n-- tea",
        "the line after '@@', '# Hates', is not in the block. Copy it exactly",
    ),
    "unknown nested anchor": (TEXT, "@@ # Likes\n@@ Ada\n-- tea", "'Ada', is not in the block below line 4"),
    "addition below several anchors": (
        "a\na",
        "@@ a\n+x",
        "hunk 1 adds lines below 'a', but that is in the block more than",
    ),
    "addition beyond the end": (
        "a",
        "@@ -3,0 +4 @@\n+x",
        "hunk 1 adds lines at line 3, but the block has 1 lines. Add",
    ),
    "additions in wrong order": (
        "a\nb",
        "@@ -2 +2 @@\n-b\n@@ -1,0 +1 @@\n+x",
        "hunk 2 adds lines after line 1 of the block",
    ),
}


@for_each(REFUSALS.values())
def test_a_refusal_says_what_did_not_fit(text: str, patch: str, message: str) -> None:
    """Each message names the hunk or line and what helps."""
    assert message in refusal(text, patch)


def test_a_long_line_is_quoted_in_part() -> None:
    """A message stays short when the line it is about is not."""
    assert len(refusal("a", "@@\n-" + "x" * 10_000)) < 500
