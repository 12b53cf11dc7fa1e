"""Plug-ins found by entry point, and their parameters; built-in ones are registered in the same way.

Schedulers and workloads declare parameters as a frozen dataclass `Params` with a default for every field. User input is
checked against its annotations (also `Annotated` with `msgspec.Meta`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from inventory.documents import Document, Origin, parse_document
from inventory.errors import InputError, ParameterError, UnfitError, nearest

P = TypeVar("P")

OWN = frozenset(
    ("agents", "analysis", "campaign", "controller", "engines", "inventory", "millrace", "scheduler", "workloads")
)
"""Names of Millrace's own top-level packages, which no other distribution may use."""


@cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return entry points of `group` by name, in name order; nothing is imported yet.

    Raises:
        UnfitError: two installed packages register the same name.
    """
    entries: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, e.value)):
        other = entries.get(entry.name)
        if other is not None and other.value != entry.value:
            raise UnfitError(f"two packages register {entry.name!r} in {group}: {other.value} and {entry.value}")
        entries[entry.name] = entry
    return entries


def find_plugin(group: str, name: str) -> EntryPoint:
    """Return the entry point of the plug-in registered as `name`; it is not imported.

    Raises:
        InputError: no such name; the message gives the nearest one.
        UnfitError: two installed packages register the same name.
    """
    entry = plugins(group).get(name)
    if entry is None:
        raise InputError(f"unknown {_kind(group)} {name!r}{nearest(name, plugins(group))}")
    return entry


def _kind(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")


def load_plugin(group: str, name: str) -> Any:
    """Import and return the plug-in registered as `name`.

    Raises:
        InputError: no such name; the message gives the nearest one.
        UnfitError: the plug-in is registered but cannot be imported, or its distribution has a package that is named
            like one of Millrace's own.
    """
    kind, entry = _kind(group), find_plugin(group, name)
    taken = _own_names_in(entry)
    if taken:
        raise UnfitError(
            f"the {kind} {name!r} ({entry.value}) cannot be loaded: its distribution has a top-level package "
            f"{taken[0]!r}, the name of one of Millrace's own; rename that package"
        )
    try:
        return entry.load()
    except Exception as fault:
        raise UnfitError(f"the {kind} {name!r} ({entry.value}) cannot be loaded: {fault}") from fault


def is_built_in(entry: EntryPoint) -> bool:
    """Return whether a plug-in is one of Millrace's own."""
    # The header as text: `dist.metadata` also parses the description, with a parser of e-mail.
    header = (entry.dist.read_text("METADATA") or "").partition("\n\n")[0] if entry.dist is not None else ""
    return "\nName: millrace\n" in header


def _own_names_in(entry: EntryPoint) -> list[str]:
    """Return Millrace's own package names that the plug-in's distribution uses for packages of its own."""
    distribution = entry.dist
    if distribution is None or is_built_in(entry):
        return []
    files = distribution.files or ()  # of an editable installation, the entry point alone gives its package
    return sorted({_package(entry.module), *(file.parts[0].removesuffix(".py") for file in files)} & OWN)


def raised_at(fault: BaseException, kind: type) -> str:
    """Return `file:line` in a plug-in's own code that led to `fault`, which may be raised in a library.

    Args:
        fault: the exception caught.
        kind: the plug-in's class. Its package is preferred to those of its base classes; if the traceback has no code
            of these, the innermost line is returned.
    """
    lines = [
        (_package(frame.f_globals.get("__name__", "")), frame, line) for frame, line in walk_tb(fault.__traceback__)
    ]
    for owner in dict.fromkeys(_package(base.__module__) for base in kind.__mro__):
        mine = [(frame, line) for package, frame, line in lines if package == owner]
        if mine:
            frame, line = mine[-1]
            break
    else:
        _, frame, line = lines[-1]
    return f"{frame.f_code.co_filename}:{line}"


def _package(module: str) -> str:
    return module.partition(".")[0]


FilePath = Annotated[str, Meta(min_length=1, extra={"relative to": "the file that has it"})]
"""Type of a parameter that names a file: a path, relative to the folder of the file that contains the parameter."""

SWITCH = {"on": True, "off": False}
"""Accepted words for true and false."""


def given(texts: Iterable[str], option: str = "--param") -> Origin:
    """Return the parameters of `K=V` texts of a command line; V is read like a YAML value.

    Raises:
        InputError: a text has no `=`, no key, or names a key twice.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{option}: got {text!r}, expected KEY=VALUE")
        if key in values:
            raise InputError(f"{option}: the key {key!r} is given twice")
        values[key] = parse_document(value, f"{option} {key}").data
    return plain_parameters(values, option)


def plain_parameters(params: Mapping[str, Any], source: str) -> Origin:
    """Return parameters that are in no file; messages name `source`."""
    return Document(source, params).origin


def parameters(kind: type[P], *sources: Origin, ignore_unknown: bool = False) -> P:
    """Return an instance of the dataclass `kind` with values from the sources; later sources take precedence.

    A parameter named with a dot in a paper or system may be given that way: `a.b` is the field `a_b`.

    Args:
        kind: the plug-in's `Params`.
        sources: origins of mappings of parameters; null stands for an empty one.
        ignore_unknown: skip parameters that `kind` lacks.

    Raises:
        InputError: an unknown parameter (with the nearest one), or a value that the annotations do not allow.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]  # any dataclass type
    values: dict[str, Any] = {}
    last = plain_parameters({}, "parameters")
    for source in sources:
        part = source.plain
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise source.error("a mapping of parameters was expected")
        for key in part:
            name = key.replace(".", "_")
            if name in names:
                values[name] = _value(source / key, hints[name])
                last = source
            elif not ignore_unknown:
                raise (source / key).error(f"unknown parameter {key!r}{nearest(key, names)}")
    try:
        return kind(**values)
    except ValueError as fault:  # from `__post_init__`: inconsistent values
        raise last.error(str(fault)) from None


def where_written(fault: ParameterError, *sources: Origin) -> ParameterError:
    """Return the error with file, line and key of the parameter in the last source that contains it."""
    name, *inner = fault.steps
    for source in reversed(sources):
        for key in source.plain or ():
            if key.replace(".", "_") == name:
                origin = reduce(Origin.__truediv__, inner, source / key)
                return ParameterError(fault.steps, fault.words, str(origin.error(fault.words)))
    return fault


def _value(origin: Origin, hint: Any) -> Any:
    value = origin.plain
    if isinstance(value, int | float) and str(value) in _words_of(hint):
        return str(value)  # a version such as 2.3, which YAML reads as a number
    if isinstance(value, str) and value.lower() in SWITCH:
        try:
            return msgspec.convert(SWITCH[value.lower()], hint)
        except msgspec.ValidationError:
            pass  # not a switch: keep the word
    converted = origin.convert(hint)
    if isinstance(converted, str) and FilePath in (hint, *get_args(hint)):
        return str(Path(origin.source).parent / converted)
    return converted


def _words_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def as_plain(params: Any) -> dict[str, Any]:
    """Return all parameters with their effective values, as plain data in the order of declaration."""
    return {f.name: msgspec.to_builtins(getattr(params, f.name)) for f in dataclasses.fields(params)}


def parameter_rows(kind: type) -> list[dict[str, Any]]:
    """Return `name`, `type` (as text) and `default` of every parameter, for listings."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = as_plain(kind())
    return [{"name": name, "type": _in_words(hints[name]), "default": value} for name, value in defaults.items()]


def _in_words(hint: Any) -> str:
    if hasattr(hint, "__metadata__"):
        meta = [m for m in hint.__metadata__ if isinstance(m, msgspec.Meta)]
        limits = [
            f"{sign} {limit:g}"
            for m in meta
            for sign, limit in ((">=", m.ge), (">", m.gt), ("<=", m.le), ("<", m.lt))
            if limit is not None
        ]
        return " ".join([_in_words(hint.__origin__), *limits])
    if get_origin(hint) is Literal:
        return " | ".join(str(choice) for choice in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(_in_words(part) for part in get_args(hint) if part is not NoneType)
    plain = get_origin(hint) or hint
    for kind, words in _WORDS:
        if isinstance(plain, type) and issubclass(plain, kind):
            return words
    return getattr(plain, "__name__", str(hint))


_WORDS: tuple[tuple[type, str], ...] = (
    (bool, "true | false"),
    (int, "whole number"),
    (float, "number"),
    (str, "text"),
    (Mapping, "mapping"),
    (Sequence, "list"),
)
