"""A Tenero whose prices a test sets."""

from collections.abc import Callable
from dataclasses import dataclass, field

from support.scripted_fetch import Request, example_response, response
from tocsin.fetch import FetchResponse
from tocsin.upstream.tenero import token_address


@dataclass
class Market:
    """Prices on pages of the list, or only by address."""

    pages: list[dict[str, float | None]]
    unlisted: dict[str, float | None] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    broken: Callable[[Request], FetchResponse | None] = lambda _: None
    asked: list[str] = field(default_factory=list)  # paths
    pools: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)  # liquidity, volume of a day

    def __call__(self, request: Request) -> FetchResponse:
        path = request.url.removeprefix("https://tenero.test/v1/stacks/tokens")
        self.asked.append(path)
        fault = self.broken(request)
        if fault is not None:
            return fault
        if path.startswith("?"):
            number = int(path.partition("cursor=")[2] or 0)
            rows = [self.row(token_id, usd) for token_id, usd in self.pages[number].items()]
            following = str(number + 1) if number + 1 < len(self.pages) else None
            return response({"data": {"rows": rows, "next": following}}, headers=self.headers)
        for token_id, usd in self.unlisted.items():
            if path == f"/{token_address(token_id)}":
                return response({"data": self.row(token_id, usd)}, headers=self.headers)
        return example_response("tenero/token_404")

    def row(self, token_id: str, usd: float | None) -> dict[str, object]:
        liquidity, volume = self.pools.get(token_id, (250_000.0, 18_000.0))
        return {
            "address": token_address(token_id),
            "price_usd": usd,
            "decimals": 6,
            "total_liquidity_usd": liquidity,
            "metrics": {"volume_1d_usd": volume},
        }
