"""Pictures of agents: drawn once for each board."""

import asyncio

import pytest

from tocsin.web.agent_pictures import AgentPictures


class Artist:
    """Draws slowly, and counts."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    async def draw(self, name: str) -> bytes:
        self.drawn.append(name)
        number = len(self.drawn)
        await asyncio.sleep(1)
        if name == "nobody":
            raise LookupError(name)
        return f"{name} {number}".encode()


async def test_a_picture_is_drawn_once_for_each_board() -> None:
    """However many ask for it, at once or later; a newer board has a new one."""
    artist, pictures = Artist(), AgentPictures(in_one_loop=True)
    at_once = await asyncio.gather(*(pictures.get("ann", 1, lambda: artist.draw("ann")) for _ in range(50)))
    later = await pictures.get("ann", 1, lambda: artist.draw("ann"))
    other = await pictures.get("bob", 1, lambda: artist.draw("bob"))
    newer = await pictures.get("ann", 2, lambda: artist.draw("ann"))

    assert {*at_once, later} == {b"ann 1"}
    assert (other, newer) == (b"bob 2", b"ann 3")
    assert artist.drawn == ["ann", "bob", "ann"]


async def test_a_picture_of_an_older_board_is_not_kept() -> None:
    """Its board was replaced while it was drawn."""
    artist, pictures = Artist(), AgentPictures(in_one_loop=True)
    older = asyncio.create_task(pictures.get("ann", 1, lambda: artist.draw("ann")))
    await asyncio.sleep(0.5)
    newer = await pictures.get("ann", 2, lambda: artist.draw("ann"))

    assert await older != newer
    assert await pictures.get("ann", 2, lambda: artist.draw("ann")) == newer


async def test_an_error_is_for_all_who_wait_and_is_not_kept() -> None:
    """The next one tries again."""
    artist, pictures = Artist(), AgentPictures(in_one_loop=True)
    asked = [pictures.get("nobody", 1, lambda: artist.draw("nobody")) for _ in range(3)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    with pytest.raises(LookupError):
        await pictures.get("nobody", 1, lambda: artist.draw("nobody"))

    assert [type(error) for error in failed] == [LookupError] * 3
    assert artist.drawn == ["nobody"] * 2


@pytest.mark.parametrize("in_one_loop", [True, False])
async def test_the_number_of_pictures_is_bounded(in_one_loop: bool) -> None:
    """The oldest is drawn again; without a shared loop, pictures are kept all the same."""
    artist, pictures = Artist(), AgentPictures(in_one_loop=in_one_loop)
    for number in (*range(101), 100, 0):
        name = str(number)
        await pictures.get(name, 1, lambda name=name: artist.draw(name))  # type: ignore[misc]

    assert artist.drawn == [*map(str, range(101)), "0"]
