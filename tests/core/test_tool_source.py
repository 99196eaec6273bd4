"""Source text as tools: what is read from it is what running it would say; what can't be read is told with its line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from perdure.core.errors import InvalidInput, PerdureError, SchemaMismatch, SourceInvalid
from perdure.core.tools.schema import schema_of
from perdure.core.tools.source import parse_source
from tests.core import tool_examples
from tests.support.cases import for_each
from tests.support.strategies import any_text, effort

SOURCE = inspect.getsource(tool_examples)

GOOGLE = '''
def roll(sides: int, label: str = "x") -> str:
    """Roll a die.

    Args:
        sides: How many.
    """
    return label
'''


@pytest.mark.parametrize("function", tool_examples.EXAMPLES, ids=lambda function: function.__name__)
def test_a_source_says_what_its_function_says(function: Callable[..., Any]) -> None:
    """The schema that is read from the text is the one that the running function has, and so are the words."""
    read = parse_source(SOURCE, name=function.__name__)

    assert (read.description, read.parameters) == schema_of(function)


@pytest.mark.parametrize("function", tool_examples.EXAMPLES, ids=lambda function: function.__name__)
def test_parameters_are_those_of_the_signature(function: Callable[..., Any]) -> None:
    """As `inspect` has them: names in order, and which of them have no default."""
    read = parse_source(SOURCE, name=function.__name__).parameters
    signature = inspect.signature(function).parameters

    assert list(read["properties"]) == list(signature)
    required = [name for name, one in signature.items() if one.default is inspect.Parameter.empty]
    assert read.get("required", []) == required


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        ("google", {"city": "The name: of the city,\nor of the town.", "exact": "To the minute."}),
        ("google", {"days": "How many days ahead. Defaults to 3."}),
        ("google_parameters", {"city": "The city.", "country": "Two letters."}),
        ("numpy_style", {"rows": "What to smooth.", "width": "Of the window.", "height": "Of the window."}),
        ("sphinx", {"path": "Where it is,\nfrom the root.", "mode": "How.", "lines": "How many."}),
        ("epydoc", {"name": "Whom."}),
        ("constrained", {"a": "A digit.", "b": "The name.", "d": "How many."}),
    ],
)
def test_texts_of_parameters_are_those_of_the_docstring(function: str, texts: dict[str, str]) -> None:
    """In each style; a parameter without one has none."""
    properties = parse_source(SOURCE, name=function).parameters["properties"]

    assert {name: properties[name].get("description") for name in texts} == texts


@pytest.mark.parametrize(
    ("function", "description"),
    [
        ("google", 'Tell the weather.\n\nWorks for any place.\nEven far ones.\n\nExamples:\ngoogle("Rome")'),
        ("numpy_style", "Smooth the rows.\n\nBy a moving mean."),
        ("sphinx", "Read a file."),
        ("epydoc", "Greet."),
        ("one_line", "Count the words"),
    ],
)
def test_descriptions_leave_out_what_a_model_does_not_need(function: str, description: str) -> None:
    """Long texts and examples are in, what it returns and raises is not."""
    assert parse_source(SOURCE, name=function).description == description


def test_the_last_public_function_is_the_tool() -> None:
    """Helpers may stand above it, private ones anywhere; another is taken by name."""
    source = f"{GOOGLE}\ndef helper(x):\n    pass\n\nasync def last() -> None:\n    'Go.'\n\ndef _own(): ...\n"

    assert parse_source(source).name == "last"
    assert parse_source(source, name="roll").parameters["required"] == ["sides"]
    with pytest.raises(SourceInvalid, match="no function 'none' at its top level; there are: roll, helper, last"):
        parse_source(source, name="none")


def test_a_function_alone_needs_no_imports() -> None:
    """Clients send what `inspect.getsource` gives: the function, indented as it was."""
    source = '''
        def look(a: Optional[List[str]], b: Literal["x"], c: datetime, d: Dict[str, Any], e: UUID, f: date) -> None:
            """Look."""
    '''
    read = parse_source(source)

    assert read.parameters["properties"] == {
        "a": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "b": {"const": "x", "type": "string"},
        "c": {"type": "string", "format": "date-time"},
        "d": {"type": "object", "additionalProperties": True},
        "e": {"type": "string", "format": "uuid"},
        "f": {"type": "string", "format": "date"},
    }
    assert read.source.lstrip().startswith("def look(") and "\ndef look(" in read.source


def test_classes_may_hold_each_other_and_parameters_any_name() -> None:
    """A reference back, or to a class further down, is one to its schema; `_x` and `copy` are names like others."""
    source = """
class Tree(BaseModel):
    name: str
    children: list["Branch"] = []
@dataclass
class Branch:
    tree: Optional[Tree]
    twin: "Branch | None" = None
def grow(tree: Tree, _x: int, copy: int = Field(3, alias="other", ge=1)):
    'Grow.'
"""
    read = parse_source(source).parameters

    assert list(read["properties"]) == ["tree", "_x", "copy"]
    assert read["properties"]["copy"] == {"type": "integer", "default": 3, "minimum": 1}
    assert read["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Branch"}
    assert read["$defs"]["Branch"]["properties"]["twin"]["anyOf"][0] == {"$ref": "#/$defs/Branch"}


@pytest.mark.parametrize(
    "annotation",
    [
        "str.__class__",
        "().__class__.__bases__[0]",
        "str.mro",
        "Literal[open('/nowhere')]",
        "'__import__(\\'sys\\').exit()'",
        "Annotated[int, exit()]",
        "conint(ge=exit())",
        "list[exit()]",
        "Sub",
    ],
)
def test_an_annotation_reaches_nothing_but_types(annotation: str) -> None:
    """No attribute of an object is looked up and nothing is called, whatever the annotation writes."""
    base = "import sys\nclass Sub(str, metaclass=sys.exit(7)):\n    x: int = sys.exit(8)\n"
    source = f"{base}def f(a: {annotation}):\n    'F.'"
    try:
        read = parse_source(source)
    except SourceInvalid:
        return
    assert read.parameters["properties"]["a"] == {"type": "integer"}


def test_what_no_model_fills_is_hidden() -> None:
    """The agent's blocks, and the client that Letta gives to its tools."""
    read = parse_source('def look(agent_state: "AgentState", x: int, client, y: int = 1):\n    "Look."\n')

    assert list(read.parameters["properties"]) == ["x", "y"]
    assert (read.takes_agent, read.left_empty) == (True, ("client",))
    assert parse_source(GOOGLE).takes_agent is False


@for_each(
    [
        ("", None, "the source is empty"),
        ("def f(:\n    pass", 1, "invalid syntax: `def f(:`"),
        ("x = 1\ndef f(a: int)\n    'F.'", 2, "expected ':'"),
        ("def f():\n'F.'", 2, "expected an indented block"),
        ("def f():\n    'F.\x00'", 2, "it has a NUL character"),
        ("x = 1", None, "no public function"),
        ("class A:\n    def f(self):\n        'F.'", None, "no public function"),
        ("def f(a: int):\n    return a", 1, "function f has a missing docstring"),
        ("\n\ndef f(a: int):\n    '''Args:\n        a: x\n    '''", 3, "missing docstring"),
        ("def f(a):\n    'F.'", 1, "parameter 'a' of f has no annotation"),
        ("def f(*a: int):\n    'F.'", 1, "parameter *a of f can't be filled"),
        ("def f(**a: int):\n    'F.'", 1, "parameter *a of f can't be filled"),
        ("def f(a: int, /):\n    'F.'", 1, "parameter 'a' of f can't be filled by a model: remove the `/`"),
        ("def f(\n    a: int,\n    b: Unknown,\n):\n    'F.'", 3, "the annotation `Unknown` can't be read"),
        ("def f(a: Callable[[int], str]):\n    'F.'", 1, "`Callable` can't be read"),
        ("def f(a: make()):\n    'F.'", 1, "`make()` can't be read"),
        ("def f(a: 'int |'):\n    'F.'", 1, "the annotation 'int |' is not a type"),
        ("class A:\n    x: int\ndef f(a: A):\n    'F.'", 1, "class A is not a pydantic model"),
        ("class A(BaseModel):\n    x: int\n    y: Odd\ndef f(a: A):\n    'F.'", 3, "`Odd` can't be read"),
        ("class A(Enum):\n    X = make()\ndef f(a: A):\n    'F.'", 2, "the value `make()` can't be read"),
        ("def f(a: Literal[make()]):\n    'F.'", 1, "the value `make()` can't be read"),
        ("A = List['A']\ndef f(a: A):\n    'F.'", None, "refers to itself"),
        ("def " + "f" * 49 + "():\n    'F.'", None, "up to 48 letters"),
        ("def über():\n    'F.'", None, "up to 48 letters"),
        ("def f(a: int = " + "(" * 500 + ")" * 500 + "):\n    'F.'", None, ""),
        ("x = " + "-" * 100_000 + "1\ndef f():\n    'F.'", None, ""),
        ("#" * 500_001, None, "the limit is 500,000"),
        (f"def f(a: Literal[{', '.join(map(str, range(1_001)))}]):\n    'F.'", 1, "more than 1,000 types and values"),
        ("def f(a: E):\n    'F.'\nclass E(Enum):" + "\n    A = 1" * 1_001, 1_002, "more than 1,000 types and values"),
    ]
)
def test_what_can_not_be_a_tool_is_told(source: str, line: int | None, reason: str) -> None:
    """Line and reason, whatever is wrong."""
    with pytest.raises(InvalidInput) as caught:
        parse_source(source)

    assert reason in str(caught.value)
    if line is not None:
        assert isinstance(caught.value, SourceInvalid)
        assert caught.value.line == line
        assert str(caught.value).startswith(f"line {line}: ")


def test_the_source_is_never_run() -> None:
    """Neither its module, nor a decorator, a default or an annotation."""
    source = """
import sys
sys.perdure_ran = True
def mark(function):
    sys.perdure_ran = True
    return function
@mark
def look(a: int = setattr(sys, "perdure_ran", True), b: "str" = open("/nowhere")) -> setattr(sys, "perdure_ran", True):
    "Look."
"""
    import sys

    assert parse_source(source).parameters["properties"] == {"a": {"type": "integer"}, "b": {"type": "string"}}
    assert not hasattr(sys, "perdure_ran")


def given_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


SIDES = {"sides": {"type": "integer"}}


@pytest.mark.parametrize(
    ("properties", "required", "parameter", "problem"),
    [
        ({**SIDES, "colour": {}}, ["sides"], "colour", "function roll does not; its own are: sides, label"),
        ({"label": {"type": "string"}}, [], "sides", "the schema does not have it"),
        (SIDES, [], "sides", "lets it be left out"),
        (SIDES, ["sides", "label"], "label", "requires it and does not describe it"),
        ({"sides": {"type": "string"}}, ["sides"], "sides", "the schema says string, its annotation `int`"),
        ({"sides": {"type": ["array", "null"]}}, ["sides"], "sides", "array or null"),
        ({**SIDES, "label": {"type": "object"}}, ["sides"], "label", "the schema says object"),
    ],
)
def test_a_schema_that_contradicts_the_signature_is_refused(
    properties: dict[str, Any], required: list[str], parameter: str, problem: str
) -> None:
    """The parameter is named."""
    with pytest.raises(SchemaMismatch, match=problem) as caught:
        parse_source(GOOGLE, parameters=given_schema(properties, required))

    assert caught.value.parameter == parameter


def test_a_schema_that_fits_the_signature_is_taken() -> None:
    """It is closed, because the function takes nothing else; the types that can't be read are its own affair."""
    kinds: list[dict[str, Any]] = [
        SIDES,
        {"sides": {"type": "number"}},
        {"sides": {}},
        {"sides": {"$ref": "#/$defs/S"}},
    ]
    for properties in kinds:
        read = parse_source(GOOGLE, parameters=given_schema(properties, ["sides"]))
        assert read.parameters == given_schema(properties, ["sides"]) | {"additionalProperties": False}
    filled = given_schema({"sides": {"type": "integer", "default": 6}}, [])
    assert parse_source(GOOGLE, parameters=filled).parameters["properties"] == filled["properties"]
    odd = "def f(data: Inventory, **more):\n    'F.'\n"
    open_schema = given_schema({"data": {"type": "object"}, "more": {"type": "string"}}, ["data"])
    assert parse_source(odd, parameters=open_schema).parameters == open_schema


def test_a_description_may_be_given() -> None:
    """Then the docstring may be missing."""
    assert parse_source("def f(a: int): ...", description="Do it.").description == "Do it."


@effort(12, 3000)
@given(any_text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """As a source, as an annotation, as a default: a tool, or one of our errors."""
    for source in (text, f"def f(a: {text}):\n    'F.'", f"def f(a: int = {text}):\n    'F.'", f"{GOOGLE}\n{text}"):
        try:
            read = parse_source(source)
        except PerdureError:
            continue
        assert read.parameters["type"] == "object"


def test_characters_that_no_source_can_have_are_told_by_their_line() -> None:
    """A mark of byte order at the beginning is no part of the source."""
    source = "def f(a: int) -> int:\n    'Say.'\n    return a\n"
    assert parse_source("\ufeff" + source).source == source
    for bad, words in (("\0", "it has a NUL character"), ("\ud800", "it has half of a surrogate pair")):
        with pytest.raises(SourceInvalid, match=f"line 3: {words}") as caught:
            parse_source(source.replace("return a", f"return '{bad}'"))
        assert caught.value.line == 3
