"""The page of an agent: true figures without scripts, a preview, a card that may be framed, and a picture."""

import asyncio
import re
from dataclasses import replace
from random import Random

import pytest

from stacks_simulator.addresses import address_of
from stacks_simulator.wallets import Wallet
from support.asgi import ask
from support.competition_site import CompetitionSite
from support.pages_driver import MINUS
from support.pages_world import sample_row
from tocsin.board import history as agent_days
from tocsin.board.agents import TradingStats, ValuedSwap
from tocsin.board.board import publish
from tocsin.board.publish import board_at
from tocsin.board.types import AgentView
from tocsin.prices.price import Price
from tocsin.swaps.types import RecentRefusal, Trade
from tocsin.text import visible
from tocsin.web import picture
from tocsin.web.agent_page import SYMBOLS, AgentFacts, head_of, page_body, token_name
from tocsin.web.drawing import CurvePoint
from tocsin.web.pages import STATIC
from tocsin.web.picture import drawn

NOW_MS = 1_800_000_000_000
ROW = replace(sample_row(Random(1), 1, NOW_MS), trade_count=19)
VIEW = AgentView(
    address=ROW.stx_address,
    tier="eligible",
    missing=[],
    agent_id=1,
    display_name="Ann",
    bns_name=None,
    ranks={"pnl": 1, "trades": 1, "volume": 1, "latest": 1},
    ranked=10,
    row=ROW,
    last_refusals=[],
    as_of=0,
)
FACTS = AgentFacts(VIEW, [], {}, [], 0, TradingStats(19, 1, 1.0, 3_600))
HOUR_MS = 3_600_000
SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token"
NO_HISTORY = "The history starts at the next full hour."


def text_of(facts: AgentFacts) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page_body(facts)))


def test_the_win_rate_names_the_trades_that_it_is_a_share_of() -> None:
    """Nineteen were closed; the values of one are known."""
    text = text_of(FACTS)

    assert "Closed trades won, where the value is known 100% of 1 " in text
    assert "100% of 19" not in text


def test_figures_say_how_far_they_reach() -> None:
    """Of the newest thousand trades, if there are more; the fall is that of the curve."""
    busy = replace(FACTS, view=replace(VIEW, row=replace(ROW, trade_count=1_001)))

    assert "newest 1,000 trades" not in text_of(FACTS)
    assert "value is known, newest 1,000 trades" in text_of(busy)
    assert "Mean holding time, newest 1,000 trades" in text_of(busy)
    assert "Largest P&amp;L drawdown in 30 days" in text_of(FACTS)


def test_the_page_has_what_the_panel_of_the_board_has() -> None:
    """Net flows, activity, the value of each trade, gains and losses in color, and refusals in order."""
    swaps = [
        ValuedSwap(NOW_MS // 1000, "stx", 5_000_000, SBTC, 200, 3.0, 2.0, "0x1"),
        ValuedSwap(NOW_MS // 1000 - 86_400, SBTC, 100, "unknown", 7, None, None, "0x2"),
        ValuedSwap(NOW_MS // 1000 - 86_400, "stx", 900_000_000, SBTC, 9_000, None, None, "0x3", is_excess=True),
    ]
    prices = {"stx": price_of(0.6, 6), SBTC: price_of(100_000.0, 8)}
    trade = Trade("0x1", "SP1", "c", "f", "stx", "5000000", SBTC, "200", 1, 1, "success", "agent", None)
    old, new = (RecentRefusal(f"0x{n}", "tx_failed", f"reason {n}", "", "SP1", None, None, n, 9 - n) for n in (1, 2))
    view = replace(VIEW, as_of=NOW_MS, row=replace(ROW, pnl_usd=-18.18, pnl_percent=20.216), last_refusals=[old, new])
    facts = replace(FACTS, view=view, swaps=swaps, trades=[trade], prices=prices)
    body, text = page_body(facts), text_of(facts)

    assert "5 STX → 0.000002 sBTC $3.00" in text
    assert f"STX {MINUS}$3.00 net {MINUS}5 · 2 trades" in text
    assert "sBTC +$0.20 net +0.000002 · 3 trades" in text
    assert "unknown unpriced net +7 units · 1 trade" in text
    assert f'<dd data-sign="loss">{MINUS}$18.18</dd>' in body
    assert "+20.22%" in text
    assert "Trade activity 3 in 30 days" in text
    assert text.index("reason 2") < text.index("reason 1")


def price_of(usd: float, decimals: int) -> Price:
    return Price(usd, decimals, NOW_MS, stale=False, source="tenero")


def test_a_page_without_a_curve_says_why() -> None:
    """The history has not begun, has just begun, or P&L is not known; without a trade nothing is promised."""
    one = [CurvePoint(0, 1.0)]
    quiet = replace(FACTS, view=replace(VIEW, row=None, ranks=None))

    assert NO_HISTORY in text_of(FACTS)
    assert "The curve starts with the second hour" in text_of(replace(FACTS, curve=one, hours=1))
    unknown = text_of(replace(FACTS, hours=700))
    assert "P&amp;L of these hours is not known: a token that the agent traded had no price." in unknown
    assert NO_HISTORY not in unknown
    assert "over time" not in text_of(quiet)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("99", ("0.00000099", "0.00000099")),
        ("100000000", ("1", "1")),
        ("123456789012", ("1,234.56789012", "1,234.56")),
        ("1234567890", ("12.3456789", "12.3456")),
        ("0", ("0", "0")),
    ],
)
def test_amounts_are_short_and_times_have_a_zone(amount: str, shown: tuple[str, str]) -> None:
    """However small they are; the exact amount is below the pointer."""
    trade = Trade("0x1", "SP1", "c", "f", "stx", amount, "stx", "5", 1_800_000_000, 1, "success", "agent", None)
    price = Price(1.0, 8, NOW_MS, stale=False, source="tenero")
    facts = replace(FACTS, trades=[trade], prices={"stx": price})
    text = text_of(facts)

    assert f'<span title="{shown[0]} STX">{shown[1]} <b>STX</b></span>' in page_body(facts)
    assert "Jan 15, 08:00 UTC" in text


@pytest.mark.parametrize(
    ("display_name", "bns_name", "shown"),
    [
        ("\u200b\u2060 ", "ann.btc", "ann.btc"),
        ("\u200b\u2060 ", None, None),
        ("\u3164\u2800", "\ufeff", None),
        ("A\u202enn\n B", None, "Ann B"),
        ("\U0001f469\u200d\U0001f680", None, "\U0001f469\u200d\U0001f680"),
    ],
)
def test_a_name_that_cannot_be_seen_is_none(display_name: str, bns_name: str | None, shown: str | None) -> None:
    """The title is the next name, or the address."""
    facts = replace(FACTS, view=replace(VIEW, display_name=display_name, bns_name=bns_name))

    assert head_of(facts, "").title == (shown or f"{ROW.stx_address[:6]}…{ROW.stx_address[-5:]}")
    assert visible(display_name) == ("" if shown in {None, bns_name} else shown)


async def traded(made: CompetitionSite) -> Wallet:
    """An agent with three trades, one refusal and two days of history with a gap."""
    chain, deps = made.chain, made.deps
    wallet = chain.wallets[0]
    for kind in ("simple", "multihop", "provider", "abort_by_response"):
        await made.trade(wallet, kind)
    now = deps.clock.now()
    board = await board_at(deps.db, deps.kv, now, deps.rules)
    for hour in (*range(48, 30, -1), *range(20, 0, -1)):
        await agent_days.append(deps.db, board.rows, now - hour * HOUR_MS)
    return wallet


async def test_an_agents_page_says_everything_without_a_script(contest: CompetitionSite) -> None:
    """Name, rank, trades with links, the refusal with its reason, and the curve, broken where nothing is known."""
    wallet = await traded(contest)
    page = await contest.get(f"/agents/{wallet.address}")
    by_number = await contest.get(f"/agents/{wallet.erc8004_agent_id}")
    text = page.body.decode()

    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert by_number.body == page.body
    assert text.count("https://explorer.hiro.so/txid/0x") == 4  # three trades and the refusal
    assert "it was mined and failed" in text
    assert "1 of 1" in text
    (curve,) = re.findall('none" width="100%" height="100%"><path d="([^"]*)"', text)
    assert curve.count("M") == 2
    assert re.search(r'<meta name="description" content="Rank 1 of 1, P&amp;L [^"]*, 3 trades\.">', text)
    assert "<style" not in text
    assert "<script>" not in text


async def test_a_preview_names_the_public_address_and_never_the_host_of_a_request(contest: CompetitionSite) -> None:
    """The page may be cached, and the one who fills the cache chooses the `Host`."""
    address = contest.chain.wallets[0].address
    without = await contest.get(f"/agents/{address}", host="evil.example")
    public = contest.with_settings(public_url="https://board.example")
    page, card = [
        await ask(public, f"/agents/{address}{path}", headers={"host": "evil.example"}) for path in ("", "/card")
    ]

    assert without.status == 200
    assert b"og:title" in without.body
    assert b"og:url" not in without.body
    assert b"og:image" not in without.body
    for answer in (page, card):
        text = answer.body.decode()
        assert f'<meta property="og:url" content="https://board.example/agents/{address}">' in text
        assert f'<meta property="og:image" content="https://board.example/agents/{address}/card.png">' in text
    assert b"evil.example" not in without.body + page.body + card.body


async def test_an_agent_with_two_wallets_has_one_page(contest: CompetitionSite) -> None:
    """Tiles, trades, closed trades and refusals are all of the identity, whichever wallet is asked for."""
    chain, db = contest.chain, contest.world.db
    first, second = chain.wallets[:2]
    merged = "UPDATE agents SET erc8004_agent_id = ? WHERE stx_address = ?"
    await db.prepare(merged).bind(first.erc8004_agent_id, second.address).run()
    for wallet, kind, gave, got in (
        (first, "simple", "stx", SBTC),
        (second, "simple", SBTC, "stx"),
        (first, "abort_by_response", "stx", SBTC),
        (second, "abort_by_response", "stx", SBTC),
    ):
        await contest.trade(wallet, kind, token_in=gave, token_out=got)
    pages = [(await contest.get(f"/agents/{each.address}")).body.decode() for each in (first, second)]

    for page in pages:
        assert "<dt>Trades</dt><dd>2</dd>" in page
        assert page.count("https://explorer.hiro.so/txid/0x") == 4  # two trades and two refusals
        assert page.count("it was mined and failed") == 2
        assert re.search(r"<dt>Mean holding time</dt><dd>[0-9]", page)


async def test_a_name_is_text_whatever_it_contains(contest: CompetitionSite) -> None:
    """On the page, in the card and in the picture."""
    wallet = await traded(contest)
    name = '"><script>alert(1)</script>漢'
    await contest.world.db.prepare("UPDATE agents SET display_name = ?").bind(name).run()
    for target in ("", "/card"):
        text = (await contest.get(f"/agents/{wallet.address}{target}")).body.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;漢" in text
    assert (await contest.get(f"/agents/{wallet.address}/card.png")).status == 200


async def test_only_the_card_may_be_framed(contest: CompetitionSite) -> None:
    """And it has no script."""
    wallet = await traded(contest)
    page = await contest.get(f"/agents/{wallet.address}")
    card = await contest.get(f"/agents/{wallet.address}/card")

    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors *" in card.headers["content-security-policy"]
    assert "x-frame-options" not in card.headers
    assert b"<script" not in card.body


async def test_the_picture_is_a_png_of_the_usual_size(contest: CompetitionSite) -> None:
    """1200 by 630, small, and another one for another agent."""
    wallet = await traded(contest)
    shown = await contest.get(f"/agents/{wallet.address}/card.png")
    other = await contest.get(f"/agents/{contest.chain.wallets[1].address}/card.png")

    assert (shown.status, shown.headers["content-type"]) == (200, "image/png")
    assert shown.body[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(shown.body[16:20]), int.from_bytes(shown.body[20:24])) == (1200, 630)
    assert len(shown.body) < 40_000
    assert shown.body != other.body


async def test_a_picture_is_drawn_again_only_when_it_changes(contest: CompetitionSite) -> None:
    """Not for another address of the same agent, for HEAD or for a new board; one that is not registered is 404."""
    drawn.cache_clear()

    def count() -> int:
        return drawn.cache_info().misses

    wallet, deps = await traded(contest), contest.deps
    path = f"/agents/{wallet.address}/card.png"
    for who in (wallet.address, str(wallet.erc8004_agent_id)):
        for method in ("GET", "HEAD"):
            await publish(deps.kv, await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules))
            await deps.clock.sleep(60)
            answer = await ask(contest.app, f"/agents/{who}/card.png", method=method)
            assert answer.status == 200
    missing = await contest.get(f"/agents/{address_of('somebody')}/card.png")
    unchanged, before = count(), await contest.get(path)
    swap = contest.chain.swap(wallet, "simple")
    contest.chain.mine()
    await contest.submit(swap.tx_id)
    await publish(deps.kv, await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules))
    await deps.clock.sleep(60)
    after = await contest.get(path)

    assert missing.status == 404
    assert unchanged == 1
    assert (before.body != after.body, count()) == (True, 2)


async def test_pictures_are_drawn_one_at_a_time(contest: CompetitionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served between two of them: each is drawn in another round of the loop."""
    drawn_in: list[int] = []
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        asyncio.get_running_loop().call_later(0, count)

    def draw(_card: picture.Card) -> bytes:
        drawn_in.append(rounds)
        return b"a picture"

    monkeypatch.setattr(picture, "drawn", draw)
    app = contest.with_deps(in_one_loop=True)
    wallets = contest.chain.wallets
    count()
    await asyncio.gather(*(ask(app, f"/agents/{each.address}/card.png") for each in wallets[:3] * 4))

    assert len(drawn_in) == 12
    assert len(set(drawn_in)) == 12


async def test_a_picture_counts_as_ten_reads(contest: CompetitionSite) -> None:
    """The page and the card count as one; where fewer reads are allowed, a picture takes all of them."""
    page = f"/agents/{contest.chain.wallets[0].address}"
    app = contest.with_settings(reads_per_minute=21)
    few = contest.with_settings(reads_per_minute=3)
    asked = [(await ask(app, page + suffix)).status for suffix in ("", "/card.png", "/card.png", "")]
    asked_few = [(await ask(few, page + suffix)).status for suffix in ("/card.png", "")]
    refused = await ask(few, f"{page}/card.png")

    assert (asked, asked_few) == ([200, 200, 200, 429], [200, 429])
    assert refused.headers["retry-after"] == "60"


async def test_an_address_that_is_not_registered_has_no_page(contest: CompetitionSite) -> None:
    """A 404 for people; a registered agent without a trade has one, which says so."""
    quiet = contest.chain.wallets[2]
    for who in (address_of("somebody"), "999999", "SP1", "%3Cscript%3E"):
        missing = await contest.get(f"/agents/{who}")
        assert (missing.status, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert b"<script>" not in missing.body
    page = await contest.get(f"/agents/{quiet.address}")
    assert page.status == 200
    assert b"This agent has no trade that counts yet." in page.body
    assert (await contest.post(f"/agents/{quiet.address}", {})).status == 405


def test_a_token_has_the_same_name_on_every_page() -> None:
    """The server's table is that of the scripts; a token of another contract keeps its own name."""
    table = re.search(r"const SYMBOLS = \{\n(.*?)\};", (STATIC / "js" / "tokens.js").read_text(), re.DOTALL)

    assert table is not None
    assert dict(re.findall(r'"?([\w.-]+)"?: "(\w+)"', table[1])) == SYMBOLS
    assert token_name("stx") == "STX"
    assert token_name("SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token") == "sBTC"
    assert token_name("SP000000000000000000002Q6VF78.sbtc-token::STX") == "sbtc-token::STX"
    assert token_name("SP000000000000000000002Q6VF78.other-token") == "other-token"
