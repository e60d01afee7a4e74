"""`GET /api/prices`: what visitors see of the cache."""

from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from holdfast_testing.virtual_time import START_MS
from stacks_simulator.addresses import address_of
from support.asgi import ask
from support.scripted_scheduler import ADMIN_KEY, Scene, scene
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.prices.tokens import STATIC_TOKENS, publish_tokens
from tocsin.web.app import create_app

SBTC, STSTX = STATIC_TOKENS[1:]
USDCX = "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token"
POOLS = {"liquidityUsd": None, "volumeUsd": None}
STX = {"priceUsd": 0.85, "decimals": 6, "fetchedAt": START_MS, "stale": False, "source": "tenero", **POOLS}
PEG = {"priceUsd": 1, "decimals": 6, "fetchedAt": None, "stale": False, "source": "peg", **POOLS}


async def stocked(scene: Scene) -> ASGIApp:
    await put_token_price(scene.site.kv, "stx", CachedPrice(0.85, 6, START_MS))
    return create_app(scene.site)


async def test_without_parameters_every_tracked_token_is_listed(tmp_path: Path) -> None:
    """Priced, pegged and not yet priced ones, as the last refresh tracked them."""
    async with scene(tmp_path) as made:
        await publish_tokens(made.site.kv, ["stx", SBTC, USDCX])
        answer = await ask(await stocked(made), "/api/prices")

        assert answer.status == 200
        assert answer.json() == {
            "prices": {"stx": STX, USDCX: PEG},
            "missing": [SBTC],
            "supportedTokens": ["stx", SBTC, USDCX],
        }
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "public, max-age=30"


async def test_tokens_are_listed_as_asked_for(tmp_path: Path) -> None:
    """Each once, in any number of parameters, whether tracked or not."""
    async with scene(tmp_path) as made:
        other = f"{address_of('deployer')}.thing"
        answer = await ask(await stocked(made), f"/api/prices?tokens=stx,{other},stx&tokens={quote(USDCX)}")

        assert answer.json()["prices"] == {"stx": STX, USDCX: PEG}
        assert answer.json()["missing"] == [other]


async def test_one_token_has_a_short_response(tmp_path: Path) -> None:
    """Even when it has no price."""
    async with scene(tmp_path) as made:
        app = await stocked(made)

        assert (await ask(app, "/api/prices?token=stx")).json() == {
            "tokenId": "stx",
            **{name: value for name, value in STX.items() if name not in POOLS},
        }
        assert (await ask(app, f"/api/prices?token={USDCX}")).json()["priceUsd"] == 1
        assert (await ask(app, f"/api/prices?token={SBTC}")).json() == {
            "tokenId": SBTC,
            "priceUsd": None,
            "decimals": None,
            "fetchedAt": None,
        }


@pytest.mark.parametrize(
    ("query", "code", "named"),
    [
        ("tokens=stx,SP1.bad", "malformed_token", "SP1.bad"),
        ("token=%3Cscript%3E", "malformed_token", "<script>"),
        ("token=%ff%fe", "malformed_token", "token"),
        ("token=" + "a" * 5000, "malformed_token", "aaa"),
        ("tokens=" + ",".join(f"{address_of('deployer')}.t-{n}" for n in range(101)), "too_many_tokens", "100"),
    ],
)
async def test_a_malformed_id_is_named(tmp_path: Path, query: str, code: str, named: str) -> None:
    """A 400 names it, cut to a readable length."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"/api/prices?{query}")

        assert answer.status == 400
        assert answer.json()["code"] == code
        assert named in answer.json()["error"]
        assert len(answer.body) < 2_000


async def test_a_hundred_ids_are_accepted(tmp_path: Path) -> None:
    """The cap is inclusive."""
    async with scene(tmp_path) as made:
        ids = [f"{address_of('deployer')}.t-{n}" for n in range(100)]

        answer = await ask(create_app(made.site), "/api/prices?tokens=" + ",".join(ids))

        assert answer.json()["missing"] == ids


async def test_an_unchanged_response_is_a_304(tmp_path: Path) -> None:
    """By its ETag: alone, in a list, weak, or as a star; cached and newly built responses alike."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        etag = (await ask(app, "/api/prices")).headers["etag"]
        for known in (etag, f'"other", W/{etag}', "*"):
            for _ in range(2):
                answer = await ask(app, "/api/prices", headers={"If-None-Match": known})
                assert (answer.status, answer.body) == (304, b"")
                assert answer.headers["etag"] == etag
            await made.site.clock.sleep(2)

        answer = await ask(app, "/api/prices", headers={"If-None-Match": '"other"'})

        assert answer.status == 200


async def test_a_new_price_is_seen_within_a_second(tmp_path: Path) -> None:
    """A response is kept in memory for that long; after that it has another ETag."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        first = await ask(app, "/api/prices")
        await put_token_price(made.site.kv, "stx", CachedPrice(0.9, 6, START_MS))
        kept = await ask(app, "/api/prices")
        await made.site.clock.sleep(1.1)
        fresh = await ask(app, "/api/prices")

        assert kept == first
        assert fresh.json()["prices"]["stx"]["priceUsd"] == 0.9
        assert fresh.headers["etag"] != first.headers["etag"]


async def test_a_refresh_shows_at_once(tmp_path: Path) -> None:
    """After a refresh the new price is there, whatever was in memory."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        await ask(app, "/api/prices?token=stx")
        await put_token_price(made.site.kv, "stx", CachedPrice(0.9, 6, START_MS))
        target = "/api/admin/scheduler?action=refresh&task=tenero"
        await ask(app, target, method="POST", headers={"X-Admin-Key": ADMIN_KEY})

        assert (await ask(app, "/api/prices?token=stx")).json()["priceUsd"] == 0.9


async def test_an_old_price_is_stale(tmp_path: Path) -> None:
    """Staleness moves with the clock, without any write."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        await made.site.clock.sleep(2 * 3_600 + 1)

        assert (await ask(app, "/api/prices?token=stx")).json()["stale"] is True


async def test_prices_never_call_the_scheduler(tmp_path: Path) -> None:
    """They come from KV alone."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        for target in ("/api/prices", "/api/prices?token=stx", f"/api/prices?tokens={SBTC}"):
            await ask(app, target)

        assert made.scheduler.calls == []


async def test_memory_is_bounded(tmp_path: Path) -> None:
    """Thousands of different queries do not fill it."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        issuer = SBTC.partition(".")[0]
        for number in range(300):
            assert (await ask(app, f"/api/prices?token={issuer}.token-{number}&n={number}")).status == 200

        cache = app._cached["/api/prices"]  # type: ignore[attr-defined]
        assert (len(cache._responses._kept), len(cache._keys)) == (64, 256)


async def test_security_headers_are_there_from_memory_and_newly_made(tmp_path: Path) -> None:
    """The fast path sends the same headers, each once."""
    async with scene(tmp_path) as made:
        app = await stocked(made)
        first, second = await ask(app, "/api/prices"), await ask(app, "/api/prices")

        assert first == second
        assert first.headers["x-content-type-options"] == "nosniff"


async def test_a_contract_stands_for_its_token_if_it_has_one(tmp_path: Path) -> None:
    """With two, it is unclear which is meant; a token that is named twice is answered once."""
    contract = f"{address_of('deployer')}.pair"
    async with scene(tmp_path) as made:
        await publish_tokens(made.site.kv, ["stx", SBTC, f"{contract}::one", f"{contract}::two"])
        app = await stocked(made)
        unclear = (await ask(app, f"/api/prices?tokens={contract}")).json()
        twice = (await ask(app, f"/api/prices?tokens={SBTC.partition('::')[0]},{quote(SBTC)}")).json()

    assert unclear["missing"] == [contract]
    assert twice["missing"] == [SBTC]
