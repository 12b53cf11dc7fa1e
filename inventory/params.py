"""Parameters of plug-ins: from user input to the plug-in's own frozen `Params` dataclass.

Schedulers and workloads declare their parameters the same way: a frozen dataclass with a default for every
field. Values are checked against its annotations (also `Annotated` with `msgspec.Meta`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from inventory.documents import Document, Steps, parse
from inventory.errors import InputError, ParameterError, nearest

P = TypeVar("P")

SWITCH = {"on": True, "off": False}
"""Accepted words for true and false."""


def given(texts: Iterable[str], option: str = "--param") -> Document:
    """Convert `K=V` texts of a command line to a document; V is read like a YAML value.

    Raises:
        InputError: a text has no `=`, no key, or names a key twice.
    """
    data: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{option}: got {text!r}, expected KEY=VALUE")
        if key in data:
            raise InputError(f"{option}: the key {key!r} is given twice")
        data[key] = parse(value, f"{option} {key}").data
    return Document(option, data)


def parameters(kind: type[P], *sources: tuple[Document, Steps]) -> P:
    """Return an instance of the dataclass `kind` with values from the sources; later sources take precedence.

    A parameter named with a dot in a paper or system may be given that way: `a.b` is the field `a_b`.

    Args:
        kind: the plug-in's `Params`.
        sources: documents, each with the steps to the mapping that holds the parameters.

    Raises:
        InputError: an unknown parameter (with the nearest one), or a value that the annotations do not allow.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]  # any dataclass type
    values: dict[str, Any] = {}
    last: tuple[Document, Steps] = (Document("parameters", {}), ())
    for document, under in sources:
        part = document.value(under)
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise document.error(under, "a mapping of parameters was expected")
        last = (document, under) if part else last
        for key in part:
            name = key.replace(".", "_")
            if name not in names:
                raise document.error((*under, key), f"unknown parameter {key!r}{nearest(key, names)}")
            values[name] = _value(document, (*under, key), hints[name])
    try:
        return kind(**values)
    except ValueError as fault:  # from `__post_init__`: inconsistent values
        document, under = last
        raise document.error(under, str(fault)) from None


def where_written(fault: ParameterError, *sources: tuple[Document, Steps]) -> ParameterError:
    """Return the error with file, line and key of the parameter in the last source that contains it."""
    name, *inner = fault.steps
    for document, under in reversed(sources):
        for key in document.value(under) or ():
            if key.replace(".", "_") == name:
                return ParameterError(fault.steps, fault.words, str(document.error((*under, key, *inner), fault.words)))
    return fault


def _value(document: Document, steps: Steps, hint: Any) -> Any:
    value = document.value(steps)
    if isinstance(value, int | float) and str(value) in _words_of(hint):
        return str(value)  # a version such as 2.3, which YAML reads as a number
    if isinstance(value, str) and value.lower() in SWITCH:
        try:
            return msgspec.convert(SWITCH[value.lower()], hint)
        except msgspec.ValidationError:
            pass  # not a switch: keep the word
    return document.convert(hint, steps)


def _words_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def as_plain(params: Any) -> dict[str, Any]:
    """Return all parameters with their effective values, as plain data in the order of declaration."""
    return {f.name: msgspec.to_builtins(getattr(params, f.name)) for f in dataclasses.fields(params)}


def described(kind: type) -> list[dict[str, Any]]:
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
