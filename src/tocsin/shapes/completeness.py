"""How much of the chain the record is proven to cover."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class Completeness(Shape):
    """Until which block the record is proven complete; null: that is not proven.

    `as_of` is when the list that proves it was last read completely. `obstacle` says what keeps the block from being
    the newest one, null if nothing does. `missing_nonces` are transactions of eligible wallets that no list has shown.
    """

    until_block: int | None
    as_of: int | None
    missing_nonces: int | None
    obstacle: str | None
