"""Parameters of plug-ins: unknown names, wrong values and their files are named; later sources win."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from inventory.documents import parse_document
from inventory.errors import InputError
from inventory.plugins import as_plain, given, parameter_rows, parameters


@dataclass(frozen=True)
class Pool:
    nodes: Annotated[int, Meta(ge=1)] = 1


@dataclass(frozen=True)
class Params:
    alpha: Annotated[float, Meta(ge=0, le=1)] = 0.8
    count: int = 3
    switch: bool = False
    word: str = "w"
    kind: Literal["group", "seed"] | None = None
    pools: Mapping[str, int | Pool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count > 100 and self.switch:
            raise ValueError("count and switch do not go together")


def test_defaults_are_used_where_nothing_is_given() -> None:
    assert parameters(Params) == Params()
    assert parameters(Params, parse_document("").origin, given([])) == Params()


def test_values_of_the_command_line_are_read_like_yaml() -> None:
    texts = ["alpha=0.5", "count=7", "switch=true", "word=no", "kind=seed", "pools={a: 2, b: {nodes: 3}}"]
    assert parameters(Params, given(texts)) == Params(0.5, 7, True, "no", "seed", {"a": 2, "b": Pool(3)})


def test_on_and_off_are_a_switch_only_where_one_is_expected() -> None:
    assert parameters(Params, given(["switch=on", "word=on"])) == Params(switch=True, word="on")
    assert parameters(Params, given(["switch=off"])).switch is False


def test_later_sources_win_key_by_key() -> None:
    file = parse_document("{alpha: 0.1, count: 1}", "p.yml")
    assert parameters(Params, file.origin, given(["count=2"])) == Params(alpha=0.1, count=2)


def test_parameters_may_be_nested_in_a_document() -> None:
    agenda = parse_document(
        "schedulers:\n- {name: x, params: {alpha: 0.3}}\n- name: y\n  params:\n    alhpa: 1", "a.yml"
    )
    assert parameters(Params, agenda.origin / "schedulers" / 0 / "params").alpha == 0.3
    with pytest.raises(InputError, match=r"a.yml:5: schedulers\[1\].params.alhpa: unknown.*did you mean 'alpha'"):
        parameters(Params, agenda.origin / "schedulers" / 1 / "params")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha=2", "--param: alpha: got 2: expected a number <= 1"),
        ("count=x", '--param: count: got "x": expected a whole number, got text'),
        ("count=1.5", "--param: count: got 1.5: expected a whole number"),
        ("switch=maybe", '--param: switch: got "maybe": expected true or false'),
        ("kind=sed", "--param: kind: 'sed' is none of the valid values; did you mean 'seed'"),
        ("pools={a: {nodes: 0}}", r"--param: pools"),
        ("gamma=1", "--param: gamma: unknown parameter 'gamma'; did you mean 'alpha'|valid: alpha"),
        ("alpha=[", "--param alpha:1: not valid YAML"),
        ("alpha=.nan", "--param alpha:1: .nan is not a finite number"),
        ("alpha", "--param: got 'alpha', expected KEY=VALUE"),
        ("=1", "--param: got '=1', expected KEY=VALUE"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parameters(Params, given([text]))


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="'alpha' is given twice"):
        given(["alpha=1", "alpha=2"])


def test_values_that_exclude_each_other_are_refused_with_their_file() -> None:
    with pytest.raises(InputError, match=r"p.yml:1: count and switch"):
        parameters(Params, parse_document("{count: 101, switch: true}", "p.yml").origin, given([]))


def test_a_list_instead_of_a_mapping_is_refused() -> None:
    with pytest.raises(InputError, match=r"p.yml:1: a mapping of parameters was expected"):
        parameters(Params, parse_document("[alpha]", "p.yml").origin)


def test_all_values_are_shown_in_order() -> None:
    shown = as_plain(Params(alpha=0.5, pools={"a": Pool(2)}))
    assert list(shown.items()) == [
        ("alpha", 0.5),
        ("count", 3),
        ("switch", False),
        ("word", "w"),
        ("kind", None),
        ("pools", {"a": {"nodes": 2}}),
    ]


def test_descriptions_name_type_and_default() -> None:
    assert parameter_rows(Params)[:5] == [
        {"name": "alpha", "type": "number >= 0 <= 1", "default": 0.8},
        {"name": "count", "type": "whole number", "default": 3},
        {"name": "switch", "type": "true | false", "default": False},
        {"name": "word", "type": "text", "default": "w"},
        {"name": "kind", "type": "group | seed", "default": None},
    ]
    assert parameter_rows(Params)[5]["type"] == "mapping"
