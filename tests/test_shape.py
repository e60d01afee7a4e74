"""What all shapes have in common."""

from dataclasses import dataclass
from importlib import import_module

from tocsin.shape import Shape, SnakeShape, _all_shapes


def test_every_shape_has_slots() -> None:
    """Without them it would get no JSON of its own: mashumaro sees only the class that a dataclass with slots makes."""
    import_module("tocsin.service")
    shapes = {shape.__name__: shape for shape in _all_shapes(SnakeShape) if shape is not Shape}

    assert len(shapes) > 100
    assert [name for name, shape in shapes.items() if "__slots__" not in vars(shape)] == []


def test_a_shape_that_extends_another_has_the_fields_of_both() -> None:
    """In JSON, in both directions."""

    @dataclass(frozen=True, slots=True)
    class Named(Shape):
        full_name: str

    @dataclass(frozen=True, slots=True)
    class Aged(Named):
        age_s: int

    assert Aged("Ann", 3).to_json() == {"fullName": "Ann", "ageS": 3}
    assert Named("Ann").to_json() == {"fullName": "Ann"}
    assert Aged.from_json({"fullName": "Ann", "ageS": 3}) == Aged("Ann", 3)
