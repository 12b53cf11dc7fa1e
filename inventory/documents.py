"""YAML and JSON documents: read with line numbers, check against a type, write back exactly.

A document is read in two steps, so that every complaint can name its line. `read` builds plain data
(dicts, lists, scalars) and remembers where each value stood; `Document.convert` turns it into a typed,
frozen `msgspec.Struct` and translates what msgspec finds wrong into file, line, key, value and the
nearest valid choice.

Scalars follow YAML 1.2's core schema, of which JSON is a part: `no` is a string and `1e3` is a number,
in a `.yaml` file as in a `.json` file.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from inventory.errors import InputError, nearest

T = TypeVar("T")
Steps = tuple[str | int, ...]

MAX_BYTES = 256 * 1024 * 1024
"""Larger documents are refused: they are data, not descriptions."""


class _Core(yaml.CSafeLoader):
    """libyaml's parser with the scalar rules of YAML 1.2."""


_Core.yaml_implicit_resolvers = {}
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
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


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


@dataclass
class Document:
    """Plain data of one file together with the place of every value in it."""

    source: str
    data: Any
    lines: dict[Steps, int] = field(default_factory=dict)

    def where(self, steps: Steps) -> str:
        """`file:line` of the value at `steps`, or of its nearest parent that has one."""
        while steps and steps not in self.lines:
            steps = steps[:-1]
        line = self.lines.get(steps)
        return self.source if line is None else f"{self.source}:{line}"

    def value(self, steps: Steps) -> Any:
        """The plain value at `steps`."""
        found = self.data
        for step in steps:
            found = found[step]
        return found

    def error(self, steps: Steps, message: str) -> InputError:
        """An `InputError` that names file, line and key of `steps`."""
        key = dotted(steps)
        return InputError(f"{self.where(steps)}: {key}: {message}" if key else f"{self.where(steps)}: {message}")

    def convert(self, kind: type[T], under: Steps = ()) -> T:
        """Return the document, or its part at `under`, as `kind` (a Struct or any type that msgspec knows).

        Raises:
            InputError: a key is unknown or missing, or a value has the wrong type or range.
        """
        part = self.value(under)
        try:
            return msgspec.convert(part, kind)
        except msgspec.ValidationError as fault:
            raise self._explained(fault, kind, part, under) from None

    def _explained(self, fault: msgspec.ValidationError, kind: Any, part: Any, under: Steps) -> InputError:
        text = str(fault)
        message, _, path = text.partition(" - at `")
        inner = _steps(path.rstrip("`"), part)
        steps = (*under, *inner)
        if "[...]" in path:
            return self._explained_entry(fault, kind, part, under, inner)
        unknown = re.match(r"Object contains unknown field `(.*)`", message)
        if unknown:
            key = unknown.group(1)
            return self.error((*steps, key), f"unknown key {key!r}{nearest(key, _keys_at(kind, inner, part))}")
        missing = re.match(r"Object missing required field `(.*)`", message)
        if missing:
            return self.error(steps, f"the key {missing.group(1)!r} is missing")
        try:
            value = self.value(steps)
        except (KeyError, IndexError, TypeError):
            value = None
        return self._refused(steps, value, message, _choices(kind, inner, part))

    def _explained_entry(
        self, fault: msgspec.ValidationError, kind: Any, part: Any, under: Steps, inner: Steps
    ) -> InputError:
        """Find the entry of the mapping at `inner` that is wrong: msgspec only says that one of them is."""
        arguments = get_args(_type_at(kind, inner, part))
        entries = self.value((*under, *inner))
        if len(arguments) == 2 and isinstance(entries, dict):
            for key, value in entries.items():
                try:
                    msgspec.convert(value, arguments[1])
                except msgspec.ValidationError as precise:
                    return self._explained(precise, arguments[1], value, (*under, *inner, key))
        return self._refused((*under, *inner), entries, str(fault).partition(" - at `")[0], [])

    def _refused(self, steps: Steps, value: Any, message: str, choices: list[str]) -> InputError:
        shown = msgspec.json.encode(value, enc_hook=str).decode()
        if len(shown) > 60:
            shown = shown[:57] + "..."
        if re.match(r"Invalid (enum )?value", message):
            named = repr(value) if isinstance(value, str) else shown
            return self.error(steps, f"{named} is none of the valid values{nearest(value, choices)}")
        return self.error(steps, f"got {shown}: {_plain(message)}")


def dotted(steps: Steps) -> str:
    """`("nodes", 0, "cores")` as `nodes[0].cores`."""
    out = ""
    for step in steps:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out


def read(path: str | Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        InputError: the file cannot be read, is not YAML/JSON, or gives a key twice.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a directory, a file was expected")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MB, too large for a description")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: not UTF-8 text (byte {fault.start})") from None
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "<text>") -> Document:
    """Read a YAML or JSON document from `text`; `source` stands for the file in messages."""
    loader = _Core(text)
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        # What is missing at the end is reported one line below the last.
        place = f"{source}:{min(mark.line, text.rstrip().count(chr(10))) + 1}" if mark else source
        raise InputError(f"{place}: not valid YAML or JSON: {fault.problem or fault.context}") from None
    except yaml.YAMLError as fault:
        raise InputError(f"{source}: not valid YAML or JSON: {fault}") from None
    finally:
        loader.dispose()
    document = Document(source, None)
    if root is not None:
        document.data = _plain_data(root, (), document, set())
    return document


def _plain_data(node: yaml.Node, steps: Steps, document: Document, above: set[int]) -> Any:
    line = node.start_mark.line + 1
    document.lines[steps] = line
    if isinstance(node, yaml.ScalarNode):
        value = _scalar(node)
        if isinstance(value, float) and not math.isfinite(value):
            raise document.error(steps, f"{node.value} is not a finite number")
        return value
    if id(node) in above:
        raise document.error(steps, "an alias that contains itself")
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain_data(item, (*steps, at), document, above) for at, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        here = (*steps, key)
        if not isinstance(key_node, yaml.ScalarNode):
            raise document.error(steps, "a key must be plain text")
        if key in found:
            document.lines[here] = key_node.start_mark.line + 1
            raise document.error(here, f"the key {key!r} is given twice")
        found[key] = _plain_data(value_node, here, document, above)
        document.lines[here] = key_node.start_mark.line + 1
    return found


def to_plain(value: Any) -> Any:
    """Typed values as plain data; keys that hold their default are left out."""
    return msgspec.to_builtins(value, str_keys=True)


def dump_yaml(value: Any) -> str:
    """`value` as YAML text that `parse` reads back to the same value."""
    return yaml.dump(to_plain(value), Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, width=110)


def dump_json(value: Any) -> str:
    """`value` as indented JSON text with a final newline; `parse` reads it back to the same value."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON allows as they are, and YAML refuses or takes for the end of a line."""


class _CoreDumper(yaml.SafeDumper):
    """Quotes every string that the core schema, or YAML 1.1, would read as something else."""


_CoreDumper.yaml_implicit_resolvers = {
    first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
}
for _first, _rules in _Core.yaml_implicit_resolvers.items():
    _CoreDumper.yaml_implicit_resolvers.setdefault(_first, []).extend(_rules)


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, '"' if _NOT_YAML.search(value) else None)


_CoreDumper.add_representer(float, _represent_float)
_CoreDumper.add_representer(str, _represent_text)


def _steps(path: str, data: Any) -> Steps:
    """msgspec's `$.nodes[0].cores` (or `$[...]` for a mapping's value) as steps into `data`."""
    steps: list[str | int] = []
    here = data
    for part in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]", path):
        name, index, _any = part
        step: str | int
        if name:
            step = name
        elif index:
            step = int(index)
        else:
            break  # msgspec does not say which value of a mapping it was
        steps.append(step)
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            break
    return tuple(steps)


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "bool": "true or false",
    "null": "nothing",
}


def _plain(message: str) -> str:
    """msgspec's words in the user's: "Expected `array | null`, got `str`" as "expected a list, got text"."""
    message = re.sub(r"`([^`]*)`", lambda kinds: _kinds(kinds.group(1)), message)
    return message[0].lower() + message[1:]


def _kinds(text: str) -> str:
    kinds = [kind for kind in text.split(" | ") if kind != "null"] or ["null"]
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def _type_at(kind: Any, steps: Steps, data: Any) -> Any:
    """What `kind` expects at `steps` of `data`; where it is a union, the member that `data` chose."""
    for step in steps:
        kind = _chosen(kind, data)
        if isinstance(step, int):
            arguments = get_args(kind)
            kind = arguments[0] if arguments else Any
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            names = {f.encode_name: f.name for f in msgspec.structs.fields(kind)}
            if step not in names:
                return Any
            kind = get_type_hints(kind, include_extras=True)[names[step]]
        else:
            arguments = get_args(kind)
            kind = arguments[1] if len(arguments) > 1 else Any
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    return _chosen(kind, data)


def _chosen(kind: Any, data: Any) -> Any:
    kind = _unwrapped(kind)
    structs = _structs(kind)
    if not isinstance(data, dict) or not structs:
        return kind
    tagged = [s for s in structs if s.__struct_config__.tag_field is not None]
    for struct in tagged:
        if data.get(str(struct.__struct_config__.tag_field)) == struct.__struct_config__.tag:
            return struct
    return kind if tagged else structs[0]


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """The Structs of a union."""
    if get_origin(kind) not in (Union, UnionType):
        return []
    return [part for part in get_args(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct)]


def _unwrapped(kind: Any) -> Any:
    """Strip `Annotated`, and `| None`."""
    if hasattr(kind, "__metadata__"):
        return _unwrapped(kind.__origin__)
    parts = [p for p in get_args(kind) if p is not type(None)]
    if type(None) in get_args(kind) and len(parts) == 1:
        return _unwrapped(parts[0])
    return kind


def _keys_at(kind: Any, steps: Steps, data: Any) -> list[str]:
    found = _type_at(kind, steps, data)
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        tag = found.__struct_config__.tag_field
        return [f.encode_name for f in msgspec.structs.fields(found)] + ([tag] if tag else [])
    return []


def _choices(kind: Any, steps: Steps, data: Any) -> list[str]:
    """The values of a Literal, or the tags of a union of Structs, that `kind` allows at `steps`."""
    found = _type_at(kind, steps, data)
    if str(get_origin(found)) == "typing.Literal":
        return [str(a) for a in get_args(found)]
    if not steps:
        return []
    around = [s.__struct_config__ for s in _structs(_type_at(kind, steps[:-1], data))]
    return [str(config.tag) for config in around if config.tag_field == steps[-1]]
