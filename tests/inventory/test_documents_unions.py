"""A document's errors inside tagged unions name the nearest valid choice, as they do elsewhere."""

import pytest
from msgspec import Struct

from inventory.documents import parse
from inventory.errors import InputError


class Circle(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="circle"):
    radius: float


class Square(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="square"):
    side: float


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Drawing(Struct, frozen=True, forbid_unknown_fields=True):
    shapes: tuple[Circle | Square, ...] = ()
    people: tuple[str | Named, ...] = ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapes: [{kind: circel, radius: 1}]", "d.yaml:1: shapes.0..kind: .*'circel'.*; did you mean 'circle'"),
        ("shapes:\n- {kind: square, sides: 1}", "d.yaml:2: shapes.0..sides: unknown key 'sides'; did you mean 'side'"),
        ("shapes: [{kind: hexagon}]", "valid: circle, square"),
        ("people: [ann, {nam: bob}]", "people.1..nam: unknown key 'nam'; did you mean 'name'"),
    ],
)
def test_an_error_inside_a_union_names_the_nearest_choice(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text, "d.yaml").convert(Drawing)
