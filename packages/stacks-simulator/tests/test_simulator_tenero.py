"""Tenero's list and tokens: pages, ways of quoting, moving prices."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stacks_simulator.simulator import Simulator
from stacks_simulator.tenero_api import TENERO_PATH
from stacks_simulator.tokens import DIKO, FILLER_TOKENS, STX, TRADED_TOKENS, USDCX, VELAR, WELSH
from support.simulated import ask, ask_json, quiet_simulator


@given(limit=st.integers(1, 100))
@settings(max_examples=10, deadline=None)
def test_tenero_lists_every_token_once(limit: int) -> None:
    """Following `next` gives every listed token once, and neither the missing nor the unlisted ones."""
    simulator = quiet_simulator()
    addresses: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = ask_json(simulator, f"{TENERO_PATH}/tokens?limit={limit}&cursor={cursor}", upstream="tenero")["data"]
        addresses += [row["address"] for row in page["rows"]]
        cursor = page["next"]

    expected = {token.address for token in (*TRADED_TOKENS, *FILLER_TOKENS)} - {USDCX.address, DIKO.address}
    assert len(addresses) == len(set(addresses))
    assert set(addresses) == expected


def test_tenero_quotes_tokens_in_six_ways(simulator: Simulator) -> None:
    """A number, a text, zero, null, missing everywhere, or found only by its address."""

    def price(address: str) -> Any:
        return ask_json(simulator, f"{TENERO_PATH}/tokens/{address}", upstream="tenero")["data"]["price_usd"]

    assert price("stx") == price("native") == simulator.tenero.price("stx", simulator.chain.now_ms)
    assert float(price(WELSH.address)) > 0
    assert isinstance(price(WELSH.address), str)
    assert price(VELAR.address) is None
    assert price(DIKO.address) > 0
    simulator.tenero.quote("stx", "zero")
    assert price("stx") == 0
    for address in (USDCX.address, "SP1.none", STX.address + "x"):
        assert ask(simulator, f"{TENERO_PATH}/tokens/{address}", upstream="tenero").status == 404
    assert ask(simulator, "/api/v1/stacks/tokens", upstream="tenero").status == 404
    assert ask(simulator, f"{TENERO_PATH}/tokens?limit=101", upstream="tenero").status == 400
    assert ask(simulator, f"{TENERO_PATH}/tokens?cursor=x", upstream="tenero").status == 400


def test_prices_drift_with_time_and_can_be_fixed(simulator: Simulator) -> None:
    """A price moves from minute to minute, by less than a tenth in an hour, until it is fixed."""
    tenero, start = simulator.tenero, simulator.chain.now_ms
    hour = [tenero.price("stx", start + minute * 60_000) for minute in range(60)]

    assert len(set(hour)) > 30
    assert max(hour) / min(hour) < 1.1
    tenero.set_price("stx", 2.5)
    assert tenero.price("stx", start) == 2.5
    tenero.set_price("stx", None)
    assert tenero.price("stx", start) == hour[0]
