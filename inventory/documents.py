"""YAML and JSON documents: reading with line numbers, checking against a type, and exact writing.

A document is read in two steps, so that every error message can name its line. `read` builds plain data (dicts, lists,
scalars) with the line of each value; `Document.convert` converts it to a typed, frozen `msgspec.Struct` and translates
msgspec's errors into file, line, key, value and the nearest valid choice. From then on, typed values are used, each
with its `Origin` where later checks may find an error.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
import yaml

from inventory.errors import InputError, nearest
from inventory.explaining import (
    choices_at,
    description_at,
    keys_at,
    path_steps,
    readable_reason,
    structs_in,
    type_at,
    unwrapped,
)
from inventory.foreign import printable
from inventory.parsing import Steps as Steps
from inventory.parsing import Yaml12Parser, is_json, json_line, lines_of, yaml_data
from inventory.parsing import dotted as dotted

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of a document; larger ones are data, not descriptions."""


class Document:
    """Plain data of one file with the position of every value.

    Attributes:
        source: name of the file in messages.
        data: dicts, lists and scalars.
    """

    def __init__(
        self, source: str, data: Any, lines: dict[Steps, int] | None = None, json_text: str | None = None
    ) -> None:
        """Keep `data`, and the lines of its values.

        Args:
            source: the file.
            data: as above; None with `json_text`.
            lines: known lines of values.
            json_text: valid JSON, from which data and lines are derived on demand.
        """
        self.source = source
        self._json = json_text
        if json_text is None:
            self.data = data
            self.lines = lines or {}

    @cached_property
    def data(self) -> Any:
        """Dicts, lists and scalars."""
        return json.loads(self._json or "null")

    @cached_property
    def lines(self) -> dict[Steps, int]:
        """Known lines of values."""
        return lines_of(self._json or "", self.source)

    @property
    def origin(self) -> "Origin":
        """Origin of the whole document."""
        return Origin(self)

    def where(self, steps: Steps) -> str:
        """Return `file:line` of the value at `steps`, or of its nearest parent with a known line."""
        line = self.line(steps)
        return self.source if line is None else f"{self.source}:{line}"

    def line(self, steps: Steps) -> int | None:
        """Return the line of the value at `steps`, or of its nearest parent with a known line."""
        if self._json is not None:
            return json_line(self._json, steps)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps)

    def value(self, steps: Steps) -> Any:
        """Return the plain value at `steps`."""
        value = self.data
        for step in steps:
            value = value[step]
        return value

    def named(self, steps: Steps) -> str:
        """Return file, line and key of the value at `steps`."""
        key = dotted(steps)
        return f"{self.where(steps)}: {key}" if key else self.where(steps)

    def error(self, steps: Steps, message: str) -> InputError:
        """Return an `InputError` that names file, line and key of `steps`."""
        # Paths, keys and values may contain any characters.
        return InputError(printable(f"{self.named(steps)}: {message}"))

    def convert(self, kind: type[T], under: Steps = ()) -> T:
        """Return the document, or its part at `under`, as `kind` (a Struct or any type supported by msgspec).

        Raises:
            InputError: keys are unknown or missing, or values have the wrong type or range; all are told, each on a
                line.
        """
        if self._json is not None and not under:
            # Decode directly from the text: plain data would take several times the memory.
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(self._json, type=kind)
        part = self.value(under)
        try:
            return msgspec.convert(part, kind)
        except msgspec.ValidationError as fault:
            several = self._faults_of_keys(kind, part, under)
            if len(several) > 1:
                raise InputError("\n".join(map(str, several))) from None
            raise self._explained(fault, kind, part, under) from None

    def _faults_of_keys(self, kind: Any, part: Any, under: Steps) -> list[InputError]:
        """Return the faults of a mapping, key by key; empty for what is no Struct."""
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(part, dict)):
            return []
        fields, config = {field.encode_name: field for field in msgspec.structs.fields(kind)}, kind.__struct_config__
        faults = []
        for key, value in part.items():
            if key in fields:
                faults += self._faults_of_value(fields[key].type, value, (*under, key))
            elif config.forbid_unknown_fields and key != config.tag_field:
                faults.append(self.error((*under, key), f"unknown key {key!r}{nearest(key, keys_at(kind, (), part))}"))
        lacking = [name for name, field in fields.items() if field.required and name not in part]
        return faults + [self.error(under, f"the key {name!r} is missing") for name in lacking]

    def _faults_of_value(self, kind: Any, value: Any, under: Steps) -> list[InputError]:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as fault:
            kind = unwrapped(kind)
            entries = structs_in(kind)
            inner = self._faults_of_keys(entries[0], value, under) if len(entries) == 1 else []
            if isinstance(value, list) and get_origin(kind) in (list, tuple, Sequence):
                of_each = get_args(kind)[0]
                inner = [
                    one for at, each in enumerate(value) for one in self._faults_of_value(of_each, each, (*under, at))
                ]
            return inner or [self._explained(fault, kind, value, under)]
        return []

    def _explained(self, fault: msgspec.ValidationError, kind: Any, part: Any, under: Steps) -> InputError:
        text = str(fault)
        message, _, path = text.partition(" - at `")
        inner = path_steps(path.rstrip("`"), part)
        steps = (*under, *inner)
        if "[...]" in path:
            return self._explained_entry(fault, kind, part, under, inner)
        unknown = re.match(r"Object contains unknown field `(.*)`", message)
        if unknown:
            key = unknown.group(1)
            return self.error((*steps, key), f"unknown key {key!r}{nearest(key, keys_at(kind, inner, part))}")
        missing = re.match(r"Object missing required field `(.*)`", message)
        if missing:
            return self.error(steps, f"the key {missing.group(1)!r} is missing")
        try:
            value = self.value(steps)
        except (KeyError, IndexError, TypeError):
            value = None
        described = description_at(kind, inner, part) if "matching regex" in message else None
        if described is not None:
            message = f"expected {described}"
        return self._refused(steps, value, message, choices_at(kind, inner, part))

    def _explained_entry(
        self, fault: msgspec.ValidationError, kind: Any, part: Any, under: Steps, inner: Steps
    ) -> InputError:
        """Return the error for the invalid entry of the mapping at `inner`, which msgspec does not name."""
        arguments = get_args(type_at(kind, inner, part))
        entries = self.value((*under, *inner))
        if len(arguments) == 2 and isinstance(entries, dict):
            for key, value in entries.items():
                try:
                    msgspec.convert(value, arguments[1])
                except msgspec.ValidationError as precise:
                    return self._explained(precise, arguments[1], value, (*under, *inner, key))
        return self._refused((*under, *inner), entries, str(fault).partition(" - at `")[0], [])

    def _refused(self, steps: Steps, value: Any, message: str, choices: list[str]) -> InputError:
        if value is None and not steps:
            return self.error(steps, "holds nothing; a mapping was expected")
        shown = msgspec.json.encode(value, enc_hook=str).decode()
        if len(shown) > 60:
            shown = shown[:57] + "..."
        if re.match(r"Invalid (enum )?value", message):
            named = repr(value) if isinstance(value, str) else shown
            return self.error(steps, f"{named} is none of the valid values{nearest(value, choices)}")
        return self.error(steps, f"got {shown}: {readable_reason(message)}")


@dataclass(frozen=True)
class Origin:
    """Origin of a value in a document, for errors about it; `origin / key` is the origin of one of its parts.

    As text, it is file, line and key.
    """

    document: Document
    steps: Steps = ()

    def __truediv__(self, step: str | int) -> "Origin":
        return Origin(self.document, (*self.steps, step))

    def __str__(self) -> str:
        return self.document.named(self.steps)

    @property
    def source(self) -> str:
        """Name of the file."""
        return self.document.source

    @property
    def where(self) -> str:
        """`file:line`."""
        return self.document.where(self.steps)

    @property
    def plain(self) -> Any:
        """The value as plain data: dicts, lists and scalars."""
        return self.document.value(self.steps)

    def error(self, message: str) -> InputError:
        """Return an error about the value, with file, line and key."""
        return self.document.error(self.steps, message)

    def convert(self, kind: type[T]) -> T:
        """Return the value as `kind`; see `Document.convert`."""
        return self.document.convert(kind, self.steps)


@dataclass(frozen=True)
class Located(Generic[T_co]):
    """A typed value and its origin."""

    value: T_co
    origin: Origin


def read(path: str | Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        InputError: the file cannot be read, is not YAML/JSON, is too long, or gives a key twice.
    """
    path = Path(path)
    name = printable(path)
    try:
        if path.is_dir():
            raise InputError(f"{name}: is a directory, a file was expected")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{name}: larger than {MAX_BYTES >> 20} MB, too large for a description")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise InputError(f"{name}: not UTF-8 text (byte {fault.start})") from None
    except OSError as fault:
        raise InputError(f"{name}: cannot be read: {fault.strerror}") from None
    return parse_document(text, str(path))


def parse_document(text: str, source: str = "<text>") -> Document:
    """Read a YAML or JSON document from `text`; `source` is the name of the file in messages."""
    if is_json(text, source):
        return Document(source, None, json_text=text)
    return Document(source, *yaml_data(text, source))


def to_plain(value: Any) -> Any:
    """Return typed values as plain data without keys that have their default value."""
    return msgspec.to_builtins(value, str_keys=True)


def dump_yaml(value: Any) -> str:
    """Return `value` as YAML text that `parse` reads back to the same value."""
    return yaml.dump(to_plain(value), Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, width=110)


def dump_json(value: Any) -> str:
    """Return `value` as indented JSON text with a final newline; `parse` reads it back to the same value."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    if text.isascii() and "\x7f" not in text:
        return text
    return _NOT_YAML.sub(lambda matched: f"\\u{ord(matched.group()):04x}", text)


_NOT_YAML = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
"""Characters valid in JSON that YAML rejects or treats as line ends, or that change the direction of text."""


class _CoreDumper(yaml.SafeDumper):
    """Dumper that quotes every string that the core schema, or YAML 1.1, would read as another type."""


_CoreDumper.yaml_implicit_resolvers = {
    first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
}
for _first, _rules in Yaml12Parser.yaml_implicit_resolvers.items():
    _CoreDumper.yaml_implicit_resolvers.setdefault(_first, []).extend(_rules)


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, '"' if _NOT_YAML.search(value) else None)


_CoreDumper.add_representer(float, _represent_float)
_CoreDumper.add_representer(str, _represent_text)
