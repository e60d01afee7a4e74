"""How much of the chain the record is proven to cover."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class Completeness(Shape):
    """Up to which block the record is proven complete; null: that is not proven.

    `as_of` is when the list that proves it was last read completely. `obstacle` explains why the block is not the
    newest one; null if it is. `missing_nonces` counts transactions of eligible wallets that no list has shown.
    """

    until_block: int | None
    as_of: int | None
    missing_nonces: int | None
    obstacle: str | None
