"""Random competitions: inputs of rounds with everything that makes counting hard."""

from decimal import Decimal
from itertools import permutations
from typing import Any

from hypothesis import strategies as st

from tocsin.rounds.round import FlagDecision, RoundAgent, RoundInputs, RoundPrice, RoundRefusal, RoundRules, RoundSwap
from tocsin.swaps.values import SwapWorth

STARTS_AT, ENDS_AT = 1_000, 2_000
TOKENS = ("stx", "SP1.sbtc::sbtc", "SP2.usd::usd", "SP3.new::new", "SP4.none::none")
AMOUNTS = (1, 2, 10**6, 2**53 - 1, 2**53 + 1, 2**63, 2**64 + 1, 2**128 - 1, 10**39, 10**40 - 1)
# Few digits cause ties, many cause rounding errors.
PRICES = ("1", "0.5", "2", "0.85", "0.000000000000000001", "1000000000000", "0.3333333333333333")
FIGURES = (None, "0", "499.99", "500", "9999.999999999999999", "10000", "123456.78")

wallets = st.sampled_from([f"SP{letter}" for letter in "ABCDE"])
agent_ids = st.integers(1, 3)
amounts = st.one_of(st.sampled_from(AMOUNTS), st.integers(1, 10**40 - 1)).map(str)
small_amounts = st.integers(1, 6).map(str)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
txids = st.integers(0, 2**256 - 1).map(lambda number: f"0x{number:064x}")
prices = st.one_of(
    st.sampled_from(PRICES), st.floats(1e-18, 1e12).map(lambda price: format(Decimal(repr(price)).normalize(), "f"))
)
# Created once, not for each swap: creating a strategy takes as long as drawing from it.
pairs = st.sampled_from(list(permutations(TOKENS, 2)))
few_pairs = st.sampled_from(list(permutations(TOKENS[:3], 2)))
times = st.one_of(st.sampled_from([999, 1_000, 1_999, 2_000]), st.integers(1_000, 1_003))
block_heights, places = st.integers(1, 2), st.integers(0, 2)
figures = st.sampled_from(FIGURES)
round_prices = st.sampled_from(["0.5", "1", "1.5", "2"])
decimals = st.sampled_from([0, 6, 8, 38])
worths = st.sampled_from([None, "0", "1", "5", "5.000000000000000000001", "7"])
refused_times = st.integers(1_000, 1_003)


@st.composite
def round_inputs(draw: st.DrawFn) -> RoundInputs:
    """Draw inputs. Some wallets share an identity; some swaps have an unknown sender or the wrong time.

    Half of the competitions have small, round numbers, so that many values are equal or exactly at a limit.
    """
    round_numbers = draw(st.booleans())
    rules = RoundRules(
        *("week-1", STARTS_AT, ENDS_AT, ENDS_AT + 3600),
        min_volume_usd=draw(st.sampled_from(["0", "0.000001", "2", "3"])),
        min_priced_trade_count=draw(st.integers(0, 3)),
        min_liquidity_usd=draw(st.sampled_from(["0", "10000"])),
        min_day_volume_usd=draw(st.sampled_from(["0", "500"])),
        dust_usd=draw(st.sampled_from(["0", "0.000000000000000000001", "1", "1.6", "2"])),
        rewards=draw(st.dictionaries(st.sampled_from(["overall_pnl", "volume"]), st.integers(0, 10**6))),
    )
    agents = [
        RoundAgent(address, f"bc1{draw(names)}", draw(agent_ids), draw(st.none() | names))
        for address in draw(st.lists(wallets, unique=True, min_size=1, max_size=4))
    ]
    swaps = {swap.txid: swap for swap in draw(st.lists(_swaps(round_numbers), max_size=25))}
    refusals = {refusal.txid: refusal for refusal in draw(st.lists(_refusals(), max_size=3))}
    decisions = {(made.erc8004_agent_id, made.kind): made for made in draw(st.lists(_decisions(), max_size=2))}
    priced = draw(st.lists(st.sampled_from(TOKENS[:4]), unique=True, min_size=2))
    listed = draw(st.lists(st.sampled_from(sorted(swaps)), unique=True)) if swaps else []
    return RoundInputs(
        rules,
        "2026-05",
        draw(st.none() | st.integers(0, 10**6)),
        agents,
        [draw(_prices(token, round_numbers)) for token in priced],
        list(swaps.values()),
        list(refusals.values()),
        list(decisions.values()),
        [SwapWorth(txid, *(draw(worths) for _ in range(4))) for txid in listed],
    )


@st.composite
def _swaps(draw: st.DrawFn, round_numbers: bool) -> RoundSwap:
    token_in, token_out = draw(few_pairs if round_numbers else pairs)
    of = small_amounts if round_numbers else amounts
    return RoundSwap(
        *(draw(txids), draw(wallets), "SP1.pool", "swap-x-for-y"),
        *(token_in, draw(of), token_out, draw(of)),
        draw(times),
        *(draw(block_heights), draw(places)),
        draw(st.sampled_from(["agent", "cron", "chainhook"])),
    )


@st.composite
def _prices(draw: st.DrawFn, token: str, round_numbers: bool) -> RoundPrice:
    return RoundPrice(
        *(token, draw(round_prices if round_numbers else prices), 0 if round_numbers else draw(decimals)),
        draw(st.sampled_from(["tenero", "peg", "manual_admin"])),
        ENDS_AT * 1000,
        *(draw(figures), draw(figures)),
    )


@st.composite
def _refusals(draw: st.DrawFn) -> RoundRefusal:
    return RoundRefusal(draw(txids), draw(wallets), "not_a_swap", draw(names), draw(refused_times))


@st.composite
def _decisions(draw: st.DrawFn) -> FlagDecision:
    options: dict[str, Any] = {
        "decision": draw(st.sampled_from(["clear", "exclude"])),
        "kind": draw(st.sampled_from([None, "churn", "ring"])),
    }
    return FlagDecision(
        draw(agent_ids), **options, reason=draw(names), decided_by="op", decided_at="2026-05-20T00:00:00Z"
    )
