"""YAML or JSON text to plain data and the line of each value.

Scalars follow YAML 1.2's core schema, of which JSON is a part: `no` is a string and `1e3` is a number, in a `.yaml`
file as in a `.json` file. JSON text is read by a JSON parser, which is many times faster, and initially only checked;
data and lines are derived on demand. YAML takes half a kilobyte of memory per value, so its size is limited.
"""

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import yaml

from inventory.errors import InputError
from inventory.foreign import printable

T = TypeVar("T", bound=Hashable)

Steps = tuple[str | int, ...]
"""Keys and indices that lead to a value."""

MOST_DEEP = 100
"""Maximum nesting; beyond it the parsers would overflow the stack."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Surrogate, as escaped in JSON."""

SAFELY_SHORT = 10_000
"""Text up to this length cannot nest deeply enough to crash libyaml, nor contain many values."""


MOST_YAML = 1_000_000
"""Maximum length of YAML text in characters, enough for thousands of hosts or executors."""


def is_json(text: str, source: str) -> bool:
    """Return whether `text` is usable JSON; other text may be YAML.

    Nothing is kept, so this takes little memory.

    Raises:
        InputError: it begins like JSON but is invalid, and is too long to be YAML.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        levels = json.loads(text, object_pairs_hook=_levels, parse_float=_finite, parse_constant=_finite)
        _level(levels)
        if _SURROGATE.search(text):
            json.dumps(json.loads(text), ensure_ascii=False).encode()  # surrogates cannot be encoded
        return True
    except (ValueError, RecursionError) as fault:
        # Similar-looking YAML, or an error that the slower parser can locate.
        if len(text) <= MOST_YAML:
            return False
        if isinstance(fault, json.JSONDecodeError):
            raise InputError(f"{source}:{fault.lineno}: not valid JSON: {fault.msg}") from None
        words = "nested too deep" if isinstance(fault, RecursionError) else fault
        raise InputError(f"{source}: not JSON that can be used: {words}") from None


def yaml_data(text: str, source: str) -> tuple[Any, dict[Steps, int]]:
    """Return the data of YAML text, and the line of every value.

    Raises:
        InputError: it is too long or not YAML, gives a key twice, nests too deep, or a number is not finite.
    """
    if len(text) > MOST_YAML:
        raise InputError(
            f"{source}: {len(text) / 1e6:.1f} MB of YAML, of which at most {MOST_YAML / 1e6:g} MB are read; "
            "write so much as JSON, which is read many times faster"
        )
    return _Reader(text, source).read()


def lines_of(text: str, source: str) -> dict[Steps, int]:
    """Return the line of every value of `text`, where known."""
    try:
        return yaml_data(text, source)[1]
    except InputError:
        return {}  # JSON may contain characters that are invalid in YAML, and be longer


def json_line(text: str, steps: Steps) -> int:
    """Return the line of the value at `steps` of JSON text: of its key, if any, or of its nearest parent."""
    position = at = _SPACE.match(text).end()  # type: ignore[union-attr]  # it matches nothing, too
    for step in steps:
        for name, named_at, value_at in _entries(text, at):
            if name == step:
                position, at = named_at, value_at
                break
        else:
            break
    return text.count("\n", 0, position) + 1


_SPACE = re.compile(r"[ \t\n\r]*")


def _entries(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield key or index, start of the entry and start of the value, for an object or array at `at`."""
    decode = json.JSONDecoder().raw_decode

    def behind(position: int) -> int:
        return _SPACE.match(text, position).end()  # type: ignore[union-attr]

    opened, number = text[at], 0
    at = behind(at + 1)
    while opened in "{[" and text[at] not in "}]":
        begin, name = at, number
        if opened == "{":
            name, at = decode(text, at)
            at = behind(behind(at) + 1)
        yield name, begin, at
        at = behind(decode(text, at)[1])
        at, number = behind(at + 1) if text[at] == "," else at, number + 1


def first_repeated(names: Iterable[T]) -> T | None:
    """Return the first name that is equal to an earlier one, or None."""
    seen: set[T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class _Level(int):
    """Nesting depth of an object, in place of the object."""


def _levels(pairs: Sequence[tuple[str, Any]]) -> _Level:
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"the key {first_repeated(name for name, _ in pairs)!r} is given twice")
    return _Level(1 + max((_level(value) for _, value in pairs), default=0))


def _level(value: Any) -> int:
    if isinstance(value, list):
        deepest = 1 + max(map(_level, value), default=0)
    else:
        deepest = value if isinstance(value, _Level) else 0
    if deepest > MOST_DEEP:
        raise ValueError("nested too deep")
    return deepest


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


class Yaml12Parser(yaml.CSafeLoader):
    """libyaml's parser with the scalar rules of YAML 1.2."""


Yaml12Parser.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?[0-9]+$|^0o[0-7]+$|^0x[0-9a-fA-F]+$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$",
        "-+0123456789.",
    ),
):
    Yaml12Parser.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def _scalar(node: yaml.ScalarNode) -> Any:
    kind = node.tag.rsplit(":", 1)[-1]
    text = str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Reader:
    """Conversion of one YAML text to plain data."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._lines: dict[Steps, int] = {}

    def read(self) -> tuple[Any, dict[Steps, int]]:
        loader = Yaml12Parser(self._text)
        try:
            if len(self._text) > SAFELY_SHORT:
                self._check_depth()
            root = loader.get_single_node()
        except yaml.MarkedYAMLError as fault:
            mark = fault.problem_mark or fault.context_mark
            # Errors at the end of the text are reported one line below the last.
            last = self._text.rstrip().count("\n")
            place = f"{self._source}:{min(mark.line, last) + 1}" if mark else self._source
            raise InputError(printable(f"{place}: not valid YAML or JSON: {fault.problem or fault.context}")) from None
        except yaml.YAMLError as fault:
            raise InputError(
                printable(f"{self._source}: not valid YAML or JSON: {' '.join(str(fault).split())}")
            ) from None
        finally:
            loader.dispose()
        return (None if root is None else self._plain(root, (), frozenset())), self._lines

    def _check_depth(self) -> None:
        """Check the depth with an iterative scan first: composing recurses in C without a limit."""
        depth = 0
        for event in yaml.parse(self._text, Loader=Yaml12Parser):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MOST_DEEP:
                    line = event.start_mark.line + 1 if event.start_mark else 1
                    raise InputError(printable(f"{self._source}:{line}: nested too deep"))
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1

    def _error(self, steps: Steps, node: yaml.Node, message: str) -> InputError:
        place = f"{self._source}:{node.start_mark.line + 1}"
        return InputError(printable(f"{place}: {dotted(steps)}: {message}" if steps else f"{place}: {message}"))

    def _plain(self, node: yaml.Node, steps: Steps, above: frozenset[int]) -> Any:
        self._lines[steps] = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, steps)
        if id(node) in above:
            raise self._error(steps, node, "an alias that contains itself")
        if len(steps) > MOST_DEEP:
            raise self._error(steps[:3], node, "nested too deep")
        if len(self._lines) > max(SAFELY_SHORT, len(self._text)):
            raise self._error(steps, node, "aliases blow the document up")
        above |= {id(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*steps, at), above) for at, item in enumerate(node.value)]
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(steps, key_node, "a key must be plain text")
            key = str(key_node.value)
            here = (*steps, key)
            if key in mapping:
                raise self._error(here, key_node, f"the key {key!r} is given twice")
            mapping[key] = self._plain(value_node, here, above)
            self._lines[here] = key_node.start_mark.line + 1
        return mapping

    def _scalar(self, node: yaml.ScalarNode, steps: Steps) -> Any:
        try:
            value = _scalar(node)
        except ValueError:  # an unsuitable tag, or a number of thousands of digits
            raise self._error(steps, node, f"{node.value[:60]!r} is no number that can be used") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(steps, node, f"{node.value} is not a finite number")
        return value


def dotted(steps: Steps) -> str:
    """Return `("nodes", 0, "cores")` as `nodes[0].cores`."""
    out = ""
    for step in steps:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out
