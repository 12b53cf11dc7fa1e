"""Translation of msgspec's errors for users: position, expected type, valid choices."""

import re
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from inventory.parsing import Steps


def path_steps(path: str, data: Any) -> Steps:
    """Return msgspec's path, such as `$.nodes[0].cores` (or `$[...]` for a mapping's value), as steps into `data`."""
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
            break  # msgspec does not name the entry of a mapping
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


def readable_reason(message: str) -> str:
    """Return msgspec's text for users: "Expected `array`, got `str`" becomes "expected a list, got text"."""
    message = re.sub(r"`([^`]*)`", lambda kinds: _kinds(kinds.group(1)), message)
    return message[0].lower() + message[1:]


def _kinds(text: str) -> str:
    kinds = [kind for kind in text.split(" | ") if kind != "null"] or ["null"]
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def type_at(kind: Any, steps: Steps, data: Any) -> Any:
    """Return the type that `kind` declares at `steps` of `data`; of a union, the member selected by `data`."""
    return _chosen(*_declared_at(kind, steps, data))


def _declared_at(kind: Any, steps: Steps, data: Any) -> tuple[Any, Any]:
    """Return the type declared at `steps` with all its annotations, and the part of `data` there."""
    for step in steps:
        kind = _chosen(kind, data)
        if isinstance(step, int):
            arguments = get_args(kind)
            kind = arguments[0] if arguments else Any
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            names = {f.encode_name: f.name for f in msgspec.structs.fields(kind)}
            if step not in names:
                return Any, None
            kind = get_type_hints(kind, include_extras=True)[names[step]]
        else:
            arguments = get_args(kind)
            kind = arguments[1] if len(arguments) > 1 else Any
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    return kind, data


def description_at(kind: Any, steps: Steps, data: Any) -> str | None:
    """Return the declared description of the values at `steps` (`Meta(description=...)`), or None."""
    declared, _ = _declared_at(kind, steps, data)
    for part in (declared, *get_args(declared)):
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description is not None:
                return meta.description
    return None


def _chosen(kind: Any, data: Any) -> Any:
    kind = unwrapped(kind)
    structs = structs_in(kind)
    if not isinstance(data, dict) or not structs:
        return kind
    tagged = [s for s in structs if s.__struct_config__.tag_field is not None]
    for struct in tagged:
        if data.get(str(struct.__struct_config__.tag_field)) == struct.__struct_config__.tag:
            return struct
    return kind if tagged else structs[0]


def structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the Structs of a union, or the one that `kind` is."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    if get_origin(kind) not in (Union, UnionType):
        return []
    return [part for part in get_args(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct)]


def unwrapped(kind: Any) -> Any:
    """Strip `Annotated` and `| None`."""
    if hasattr(kind, "__metadata__"):
        return unwrapped(kind.__origin__)
    parts = [p for p in get_args(kind) if p is not type(None)]
    if type(None) in get_args(kind) and len(parts) == 1:
        return unwrapped(parts[0])
    return kind


def keys_at(kind: Any, steps: Steps, data: Any) -> list[str]:
    """Return the keys that `kind` allows at `steps`."""
    type_there = type_at(kind, steps, data)
    if isinstance(type_there, type) and issubclass(type_there, msgspec.Struct):
        tag = type_there.__struct_config__.tag_field
        return [f.encode_name for f in msgspec.structs.fields(type_there)] + ([tag] if tag else [])
    return []


def choices_at(kind: Any, steps: Steps, data: Any) -> list[str]:
    """Return the values of Literals, or the tags of a union of Structs, that `kind` allows at `steps`."""
    type_there = type_at(kind, steps, data)
    members = get_args(type_there) if get_origin(type_there) in (Union, UnionType) else (type_there,)
    words = [str(word) for each in members if get_origin(each) is Literal for word in get_args(each)]
    if words:
        return words
    if not steps:
        return []
    around = [s.__struct_config__ for s in structs_in(type_at(kind, steps[:-1], data))]
    return [str(config.tag) for config in around if config.tag_field == steps[-1]]
