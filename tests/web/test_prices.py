"""Prices and their history over HTTP."""

from urllib.parse import quote

import pytest

from holdfast.testing.virtual_time import START_MS
from stacks_simulator.addresses import address_of
from support.world import KEY, Tocsin
from tocsin.prices.store import STATIC_TOKENS, CachedPrice, PricePoint, append, publish_tokens, put_token_price

SBTC, STSTX = STATIC_TOKENS[1:]
USDCX = "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token"
POOLS = {"liquidityUsd": None, "volumeUsd": None}
STX = {"priceUsd": 0.85, "decimals": 6, "fetchedAt": START_MS, "stale": False, "source": "tenero", **POOLS}
PEG = {"priceUsd": 1, "decimals": 6, "fetchedAt": None, "stale": False, "source": "peg", **POOLS}


async def stocked(made: Tocsin) -> Tocsin:
    await put_token_price(made.kv, "stx", CachedPrice(0.85, 6, START_MS))
    return made


@pytest.mark.parametrize("query", ["", "?tokens=", "?tokens=,"])
async def test_without_tokens_every_tracked_one_is_listed(made: Tocsin, query: str) -> None:
    """Priced, pegged and not yet priced ones, as the last refresh tracked them."""
    await publish_tokens(made.kv, ["stx", SBTC, USDCX])
    answer = await (await stocked(made)).ask(f"/api/prices{query}")

    assert answer.status == 200
    assert answer.json() == {
        "prices": {"stx": STX, USDCX: PEG},
        "missing": [SBTC],
        "supportedTokens": ["stx", SBTC, USDCX],
    }
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=30"


async def test_tokens_are_listed_as_asked_for(made: Tocsin) -> None:
    """Each once, in any number of parameters, whether tracked or not."""
    other = f"{address_of('deployer')}.thing"
    answer = await (await stocked(made)).ask(f"/api/prices?tokens=stx,{other},stx&tokens={quote(USDCX)}")

    assert answer.json()["prices"] == {"stx": STX, USDCX: PEG}
    assert answer.json()["missing"] == [other]


async def test_one_token_has_a_short_response(made: Tocsin) -> None:
    """Even when it has no price."""
    await stocked(made)

    assert (await made.ask("/api/prices?token=stx")).json() == {
        "tokenId": "stx",
        **{name: value for name, value in STX.items() if name not in POOLS},
    }
    assert (await made.ask(f"/api/prices?token={USDCX}")).json()["priceUsd"] == 1
    assert (await made.ask(f"/api/prices?token={SBTC}")).json() == {
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
        ("tokens=" + ",".join(["stx"] * 101), "too_many_tokens", "100"),
    ],
)
async def test_a_malformed_id_is_named(made: Tocsin, query: str, code: str, named: str) -> None:
    """A 400 names it, cut to a readable length."""
    answer = await made.ask(f"/api/prices?{query}")

    assert answer.status == 400
    assert answer.json()["code"] == code
    assert named in answer.json()["error"]
    assert len(answer.body) < 2_000


async def test_a_hundred_ids_are_accepted(made: Tocsin) -> None:
    """The cap is inclusive."""
    ids = [f"{address_of('deployer')}.t-{n}" for n in range(100)]

    answer = await made.ask("/api/prices?tokens=" + ",".join(ids))

    assert answer.json()["missing"] == ids


async def test_an_unchanged_response_is_a_304(made: Tocsin) -> None:
    """By its ETag: alone, in a list, weak, or as a star; cached and newly built responses alike."""
    await stocked(made)
    etag = (await made.ask("/api/prices")).headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        for _ in range(2):
            answer = await made.ask("/api/prices", headers={"If-None-Match": known})
            assert (answer.status, answer.body) == (304, b"")
            assert answer.headers["etag"] == etag
        await made.clock.sleep(2)

    answer = await made.ask("/api/prices", headers={"If-None-Match": '"other"'})

    assert answer.status == 200


async def test_a_new_price_is_seen_within_a_second(made: Tocsin) -> None:
    """A response is kept in memory for that long; after that it has another ETag."""
    await stocked(made)
    first = await made.ask("/api/prices")
    await put_token_price(made.kv, "stx", CachedPrice(0.9, 6, START_MS))
    kept = await made.ask("/api/prices")
    await made.clock.sleep(1.1)
    fresh = await made.ask("/api/prices")

    assert kept == first
    assert fresh.json()["prices"]["stx"]["priceUsd"] == 0.9
    assert fresh.headers["etag"] != first.headers["etag"]


async def test_a_refresh_shows_at_once(made: Tocsin) -> None:
    """After a refresh the new price is there, whatever was in memory."""
    await stocked(made)
    await made.ask("/api/prices?token=stx")
    assert (await made.act("action=refresh&task=tenero")).status == 200

    assert (await made.ask("/api/prices?token=stx")).json()["priceUsd"] == 0.792721


async def test_an_old_price_is_stale(made: Tocsin) -> None:
    """Staleness moves with the clock, without any write."""
    await stocked(made)
    await made.clock.sleep(2 * 3_600 + 1)

    assert (await made.ask("/api/prices?token=stx")).json()["stale"] is True


async def test_prices_never_call_the_scheduler(failing: Tocsin) -> None:
    """They come from KV alone."""
    await stocked(failing)
    for target in ("/api/prices", "/api/prices?token=stx", f"/api/prices?tokens={SBTC}"):
        assert (await failing.ask(target)).status == 200


async def test_memory_is_bounded(made: Tocsin) -> None:
    """Thousands of different queries do not fill it."""
    issuer = SBTC.partition(".")[0]
    for number in range(300):
        assert (await made.ask(f"/api/prices?token={issuer}.token-{number}&n={number}")).status == 200

    cache = made.app._caches["/api/prices"]
    assert (len(cache._responses._kept), len(cache._keys)) == (64, 256)


async def test_security_headers_are_there_from_memory_and_newly_made(made: Tocsin) -> None:
    """The fast path sends the same headers, each once."""
    await stocked(made)
    first, second = await made.ask("/api/prices"), await made.ask("/api/prices")

    assert first == second
    assert first.headers["x-content-type-options"] == "nosniff"


async def test_a_contract_stands_for_its_token_if_it_has_one(made: Tocsin) -> None:
    """With two, it is unclear which is meant; a token that is named twice is answered once."""
    contract = f"{address_of('deployer')}.pair"
    await publish_tokens(made.kv, ["stx", SBTC, f"{contract}::one", f"{contract}::two"])
    await stocked(made)
    of_sbtc = SBTC.partition("::")[0]
    unclear = (await made.ask(f"/api/prices?tokens={contract}")).json()
    twice = (await made.ask(f"/api/prices?tokens={of_sbtc},{quote(SBTC)}")).json()
    one = (await made.ask(f"/api/prices?token={of_sbtc}")).json()

    assert (unclear["missing"], one["tokenId"]) == ([contract], SBTC)
    assert twice["missing"] == [SBTC]


PATH = "/api/admin/prices/history"
MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS


def point(at: int, price: str | None) -> PricePoint:
    return PricePoint("stx", at, price, 6, "tenero", None, None)


async def test_what_a_token_cost(made: Tocsin) -> None:
    """Of the period, oldest first, with a time without a price; a long period has the last point of each stretch."""
    now = made.clock.now()
    every = [point(now - n * 5 * MINUTE_MS, f"0.{n + 1:04}") for n in range(3 * 288)]
    gone = point(now - 2 * MINUTE_MS, None)
    await made.db.batch(append(made.db, [*every, gone]))

    day = (await made.ask(f"{PATH}?token=stx", headers=KEY)).json()
    month = (await made.ask(f"{PATH}?token=stx&period=30d", headers=KEY)).json()
    none = (
        await made.ask(f"{PATH}?token=SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx", headers=KEY)
    ).json()

    assert (day["token"], day["period"], day["asOf"]) == ("stx", "24h", now)
    assert day["points"][-1] == {"at": now, "priceUsd": 0.0001}
    assert day["points"][-2] == {"at": gone.at, "priceUsd": None}
    assert day["points"][0]["at"] == now - DAY_MS
    assert len(day["points"]) == 289 + 1
    assert 40 <= len(month["points"]) <= 42  # three days of 108 minutes each
    assert [each["at"] for each in month["points"]] == sorted(each["at"] for each in month["points"])
    assert none["points"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("token=", 400, "malformed_token"),
        ("token=%3Cb%3E", 400, "malformed_token"),
        ("token=stx&period=1y", 400, "bad_period"),
    ],
)
async def test_a_bad_question_is_refused(made: Tocsin, query: str, status: int, code: str) -> None:
    """Without a key, nothing is shown."""
    answer = await made.ask(f"{PATH}?{query}", headers=KEY)
    without_key = await made.ask(f"{PATH}?token=stx")

    assert (answer.status, answer.json()["code"]) == (status, code)
    assert without_key.status == 401
