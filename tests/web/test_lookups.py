"""Other programs ask the upstreams through the service: over real HTTP, from the simulator, with the real budget."""

import asyncio
import http.client
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.http_messages import SimulatedRequest
from stacks_simulator.simulator import Simulator
from support.asgi import Answer, serving
from support.simulated import quiet_simulator
from support.simulated_fetch import SimulatedFetch
from support.world import KEY, Tocsin, tocsin_in
from tocsin.settings import lookup_keys, read
from tocsin.upstream.lookups import STALE_MAX_S
from tocsin.web.deps import Process

SITE = {"x-api-key": "a-key-of-the-site-1"}
OTHER = {"x-api-key": "a-key-of-a-board-2"}
KEYS = lookup_keys("site:40%:a-key-of-the-site-1,board:10%:a-key-of-a-board-2")
BASE = "/api/upstream/hiro"
CALL = f"{BASE}/v2/contracts/call-read/SP1/reputation/get-summary"
PLAN = {"hiro_plan_second": 1_000, "hiro_plan_minute": 100_000, "hiro_plan_month": 10_000_000}


@asynccontextmanager
async def opened(directory: Path, *, watched: bool = True, **settings: Any) -> AsyncIterator[Tocsin]:
    """Open the service. `watched`: the web application runs in the object's process."""
    process = Process() if watched else None
    async with tocsin_in(directory, process=process, lookup_key=KEYS, **{**PLAN, **settings}) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path) -> AbstractAsyncContextManager[Tocsin]:
    return opened(tmp_path)


def asked(made: Tocsin) -> list[tuple[str, str, int]]:
    """What the upstreams were asked for, and what they answered."""
    return [(each.path, each.query, each.status) for each in made.simulator.requests]


async def use_of(made: Tocsin, key: str = "site") -> dict[str, Any]:
    status: Any = (await made.client().status()).to_json()
    return dict(status["lookups"][key])


def names(made: Tocsin, number: int = 0) -> str:
    return f"/v1/addresses/stacks/{made.simulator.chain.wallets[number].address}"


@pytest.mark.parametrize("watched", [True, False])
async def test_an_answer_is_asked_for_once_and_then_confirmed(tmp_path: Path, *, watched: bool) -> None:
    """Fresh for six hours, with its age; then Hiro confirms it by its ETag; then its change shows."""
    async with opened(tmp_path, watched=watched) as made:
        target = f"{BASE}{names(made)}"
        first = await made.get(target, **SITE)
        await asyncio.sleep(100)
        again = await made.get(target, **SITE)
        await asyncio.sleep(20)
        older = await made.get(target, **SITE)
        await asyncio.sleep(6 * 3600)
        confirmed = await made.get(target, **SITE)
        await asyncio.sleep(6 * 3600)
        made.simulator.hiro.lookups.names[made.simulator.chain.wallets[0].address] = "new.btc"
        changed = await made.get(target, **SITE)
        answers = [
            (each.headers["age"], each.headers["cache-status"]) for each in (first, again, older, confirmed, changed)
        ]
        statuses = [status for _, _, status in asked(made)]
        use = await use_of(made)
    assert {each.headers["cache-control"] for each in (first, older)} == {"private, max-age=21600"}
    assert (first.status, first.headers["content-type"], again.body) == (200, "application/json", first.body)
    assert answers == [
        ("0", "tocsin; fwd=miss; stored"),
        ("100", "tocsin; hit"),
        ("120", "tocsin; hit"),
        ("0", "tocsin; fwd=stale; fwd-status=304; stored"),
        ("0", "tocsin; fwd=miss; stored"),
    ]
    assert changed.json() == {"names": ["new.btc"]}
    assert statuses == [200, 304, 200]
    assert (use["lookups"], use["hits"], use["calls"], use["refused"]) == (5, 2, 3, 0)


async def test_a_caller_that_has_the_answer_gets_304(made: Tocsin) -> None:
    first = await made.get(f"{BASE}{names(made)}", **SITE)
    again = await made.get(f"{BASE}{names(made)}", **SITE, **{"if-none-match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["age"]) == (304, b"", "0")


async def test_the_query_and_the_body_are_part_of_the_question(made: Tocsin) -> None:
    """Another query, another body, another call; the same JSON, however it is spaced, is the same question."""
    for query in ("?a=1", "?a=2", "?a=1"):
        await made.get(f"{BASE}{names(made)}{query}", **SITE)
    encoded = await made.get(f"{BASE}{names(made)}%3Fa=1", **SITE)
    bodies = [b'{"sender": "SP1", "arguments": []}', b'{"sender":"SP2","arguments":[]}']
    answers = [await made.ask(CALL, method="POST", headers=SITE, body=body) for body in (*bodies, bodies[0])]
    spaced = await made.ask(CALL, method="POST", headers=SITE, body=b'{"sender":"SP1",\n"arguments":[]}')
    queries = [query for _, query, _ in asked(made)]
    use = await use_of(made)
    assert (queries, encoded.status) == (["a=1", "a=2", "", ""], 403)
    assert answers[0].json() == {"okay": True, "result": "0x53503130"}
    assert [answer.headers["cache-status"].split(";")[1] for answer in (*answers, spaced)] == [
        " fwd=miss",
        " fwd=miss",
        " hit",
        " hit",
    ]
    assert use["calls"] == 2 + 2 * 2  # a contract call costs two


async def test_of_the_paths_that_match_the_first_one_counts(tmp_path: Path) -> None:
    paths = read({"TOCSIN_LOOKUP_PATHS": "hiro/v1/addresses/*/*=2h,hiro/v1/*/*/*=1h"}).lookup_paths
    async with opened(tmp_path, lookup_paths=paths) as made:
        answer = await made.get(f"{BASE}{names(made)}", **SITE)
    assert answer.headers["cache-control"] == "private, max-age=7200"


async def test_the_same_question_is_asked_once_at_a_time(tmp_path: Path) -> None:
    """Fifty callers, of two programs, while one call is under way."""
    async with opened(tmp_path, fetch=lambda simulator: SimulatedFetch(simulator, latency_s=1.0)) as made:
        target = f"{BASE}{names(made)}"
        answers = await asyncio.gather(*[made.get(target, **(SITE if n % 2 else OTHER)) for n in range(50)])
        assert len(asked(made)) == 1
        uses = [await use_of(made, key) for key in ("site", "board")]
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert sorted((use["calls"], use["hits"]) for use in uses) == [(0, 25), (1, 24)]


class Noting(SimulatedFetch):
    """Keeps what was sent."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator)
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, url: str, **options: Any) -> Any:
        self.sent.append((url, options))
        return await super().__call__(url, **options)


async def test_nothing_of_the_caller_goes_to_the_upstream_and_no_key_comes_back(tmp_path: Path) -> None:
    """No header of the request is sent on, and no header or word of the answer has our key."""
    fetches: list[Noting] = []

    def noting(simulator: Simulator) -> Noting:
        fetches.append(Noting(simulator))
        return fetches[0]

    secrets = {"authorization": "Bearer s3cret", "cookie": "s=s3cret", "x-forwarded-for": "1.2.3.4", "x-admin-key": "k"}
    async with opened(tmp_path, fetch=noting, hiro_api_key="our-own-hiro-key") as made:
        answer = await made.ask(f"{BASE}{names(made)}?q=%27", headers={**SITE, **secrets})
        [(url, options)] = fetches[0].sent
    assert url == f"https://api.mainnet.hiro.so{names(made)}?q=%27"
    assert set(options["headers"]) == {"accept", "user-agent", "x-api-key"}
    assert options["headers"]["x-api-key"] == "our-own-hiro-key"
    assert "s3cret" not in json.dumps(options["headers"])
    assert "our-own-hiro-key" not in f"{answer.headers}{answer.body.decode()}"
    assert "our-own-hiro-key" not in str(made.log.lines)


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/v2/info", 403, "not_allowed"),
        ("/v1/names/a/b", 403, "not_allowed"),
        ("/v1/names/..", 403, "not_allowed"),
        ("/v1/names/%2e%2e", 403, "not_allowed"),
        ("/v1/names/../../v2/info", 403, "not_allowed"),
        ("/v1/names/..%2f..%2fv2%2finfo", 403, "not_allowed"),
        ("/v1/names/%252e%252e", 403, "not_allowed"),
        ("/v1/names/a%2fb", 403, "not_allowed"),
        ("/v1/names/a%5cb", 403, "not_allowed"),
        ("/v1/names/a%3fb", 403, "not_allowed"),
        ("/v1/names/a%23b", 403, "not_allowed"),
        ("/v1/names/a%0d%0ax-evil:1", 404, "not_found"),
        ("/v1/names/", 403, "not_allowed"),
        ("//v1/names/a", 403, "not_allowed"),
        ("/v1//names/a", 403, "not_allowed"),
        ("/v1/names/" + "a" * 301, 403, "not_allowed"),
        ("/v2/contracts/call-read/SP1/reputation/get-summary", 403, "not_allowed"),  # a GET
        ("/v1/names/a?" + "q" * 1_025, 400, "bad_query"),
        ("/v1/names/a?q=\"'", 400, "bad_query"),
    ],
)
async def test_no_path_leads_out_of_the_list(made: Tocsin, target: str, status: int, code: str) -> None:
    """Whatever is encoded: the upstream is not asked."""
    answer = await made.get(f"{BASE}{target}", **SITE)
    assert (answer.status, answer.json()["code"], asked(made)) == (status, code, [])


async def test_only_read_only_contract_calls_may_be_posted(made: Tocsin) -> None:
    """A transaction is not broadcast, a body has a bound, and another upstream does not exist."""
    posted = [
        await made.ask(f"{BASE}{path}", method="POST", headers=SITE, body=body)
        for path, body in (
            ("/v2/transactions", b"{}"),
            (names(made), b"{}"),
            (CALL.removeprefix(BASE), b"not JSON"),
            (CALL.removeprefix(BASE), b'"%s"' % (b"x" * 70_000)),
        )
    ]
    other = await made.get("/api/upstream/ripple/v1/names/a", **SITE)
    changed = await made.ask(f"{BASE}{names(made)}", method="DELETE", headers=SITE)
    assert asked(made) == []
    assert [answer.status for answer in (*posted, other, changed)] == [403, 403, 400, 413, 400, 405]


async def test_who_may_ask(tmp_path: Path) -> None:
    """Only a key of this role: not none, not a wrong one, not an operator's; and it opens nothing else."""
    async with opened(tmp_path) as made:
        target = f"{BASE}{names(made)}"
        await made.get(target, **SITE)  # so that the answer is in memory
        admin_key = KEY["x-admin-key"]
        answers = [
            await made.ask(target, headers=h) for h in ({}, {"x-api-key": "wrong"}, {"x-api-key": admin_key}, KEY)
        ]
        console = await made.get("/api/admin/scheduler", **{"x-admin-key": SITE["x-api-key"]})
        guesses = [await made.get(target, **{"x-api-key": "guess"}) for _ in range(12)]
        guessed = await made.get(target, **SITE)
        elsewhere = await made.ask(target, headers=SITE, client="192.0.2.9")
    assert [answer.status for answer in (*answers, console)] == [401, 401, 401, 401, 401]
    assert (guesses[-1].status, guessed.status, elsewhere.status) == (429, 429, 200)
    async with tocsin_in(make(tmp_path / "off")) as off:
        switched_off = (await off.get(f"{BASE}/v1/names/a", **SITE)).json()
    assert switched_off["code"] == "key_not_configured"
    assert switched_off["error"].endswith("set TOCSIN_LOOKUP_KEY in .env and restart.")  # a reload does not apply it


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("503", 503, "upstream_unavailable"),
        ("500", 500, "upstream_unavailable"),
        ("hang", 504, "upstream_unavailable"),
        ("html", 502, "upstream_unusable"),
        ("401", 502, "upstream_unusable"),
    ],
)
async def test_a_failure_is_a_failure_and_never_kept(made: Tocsin, fault: str, status: int, code: str) -> None:
    """The upstream's trouble is passed on with a status that says so; the next caller asks again."""
    target = f"{BASE}{names(made)}"
    break_upstream(made.simulator, fault)
    failed = await made.get(target, **SITE)
    made.simulator.faults.clear()
    answer = await made.get(target, **SITE)
    use = await use_of(made)
    assert (failed.status, failed.json()["code"], answer.status) == (status, code, 200)
    assert "age" not in failed.headers
    assert (use["failed"], use["hits"]) == (1, 0)


async def test_what_does_not_exist_is_a_fact_for_five_minutes(made: Tocsin) -> None:
    """The upstream's own 404, from memory for a while, so a new name shows soon; and never when it is old."""
    target = f"{BASE}/v1/names/new.btc"
    absent = [await made.get(target, **SITE) for _ in range(2)]
    await asyncio.sleep(301)
    break_upstream(made.simulator, "503")
    unknown = await made.get(target, **SITE)
    made.simulator.faults.clear()
    made.simulator.hiro.lookups.names[made.simulator.chain.wallets[0].address] = "new.btc"
    found = await made.get(target, **SITE)
    assert [(answer.status, answer.json()["error"]) for answer in absent] == [(404, "Not Found")] * 2
    assert [answer.headers["cache-status"] for answer in absent] == ["tocsin; fwd=miss; stored", "tocsin; hit"]
    assert (unknown.status, found.status) == (503, 200)


async def test_an_old_answer_is_given_only_when_it_is_marked(made: Tocsin) -> None:
    """While the upstream is down: with its age and a warning, for a day; after that the failure itself."""
    target = f"{BASE}{names(made)}"
    first = await made.get(target, **SITE)
    break_upstream(made.simulator, "503")
    await asyncio.sleep(6 * 3600 + 10)
    stale = await made.get(target, **SITE)
    await asyncio.sleep(STALE_MAX_S)
    too_old = await made.get(target, **SITE)
    use = await use_of(made)
    assert (stale.status, stale.body, stale.headers["cache-control"]) == (200, first.body, "no-store")
    assert 21_610 <= int(stale.headers["age"]) <= 21_625
    assert stale.headers["warning"] == '110 tocsin "stale: hiro answered 503"'
    assert stale.headers["cache-status"].startswith("tocsin; hit; ttl=-")
    assert (too_old.status, use["stale"], use["failed"]) == (503, 1, 1)


async def test_a_used_share_is_refused_with_the_time_when_it_is_not(tmp_path: Path) -> None:
    """One program cannot use the calls of the other; at the time that was named, it may ask again."""
    async with opened(tmp_path, hiro_plan_month=3_000, hiro_plan_cap=True) as made:
        answers = [await made.get(f"{BASE}/v1/names/name{number}.btc", **SITE) for number in range(150)]
        refused = [answer for answer in answers if answer.status == 429]
        other = await made.get(f"{BASE}/v1/names/other.btc", **OTHER)
        await asyncio.sleep(int(refused[-1].headers["retry-after"]))
        later = await made.get(f"{BASE}/v1/names/later.btc", **SITE)
        use = await use_of(made)
    assert 35 < use["calls"] < 45
    assert use["refused"] == len(refused) > 60
    assert refused[0].json() == {
        "error": "site has no call to hiro left for this now.",
        "code": "share_used",
        "retryable": True,
    }
    assert (other.status, later.status) == (404, 404)  # asked, and not found


async def test_what_is_known_waits_for_what_is_not(tmp_path: Path) -> None:
    """When half of the share is used, old answers are given as they are, and new questions are still asked."""
    async with opened(tmp_path, hiro_plan_month=3_000, hiro_plan_cap=True) as made:
        known = f"{BASE}/extended/v1/address/{made.simulator.chain.wallets[0].address}/balances"
        answers: list[Answer] = []
        while not answers or "warning" not in answers[-1].headers:
            answers.append(await made.get(known, **SITE))
            await asyncio.sleep(61)
        fresh = await made.get(f"{BASE}{names(made)}", **SITE)
    assert {answer.status for answer in answers} == {200}
    assert answers[-1].headers["warning"] == '110 tocsin "stale: site has no call to hiro left for this now"'
    assert (fresh.status, fresh.headers["cache-status"]) == (200, "tocsin; fwd=miss; stored")


async def test_a_full_window_is_refused_with_its_reason(tmp_path: Path) -> None:
    """The share of the day is there, but not of this minute: the limiter says when."""
    async with opened(tmp_path, hiro_plan_minute=10, hiro_plan_cap=True) as made:
        targets = [f"{BASE}/v1/names/name{number}.btc" for number in range(12)]
        answers = await asyncio.gather(*[made.get(target, **SITE) for target in targets])
        refused = [answer for answer in answers if answer.status == 429]
        await asyncio.sleep(int(refused[0].headers["retry-after"]))
        later = await made.get(f"{BASE}/v1/names/later.btc", **SITE)
    assert len(refused) == 7  # requests may have five of ten
    assert refused[0].json()["code"] == "budget_used"
    assert "the limit of 10 calls per minute is reached" in refused[0].json()["error"]
    assert later.status == 404


async def test_tenero_is_asked_in_the_same_way(made: Tocsin) -> None:
    answers = [await made.get("/api/upstream/tenero/v1/stacks/tokens/stx", **SITE) for _ in range(2)]
    assert [each[0] for each in asked(made)] == ["/v1/stacks/tokens/stx"]
    assert [answer.headers["cache-status"] for answer in answers] == ["tocsin; fwd=miss; stored", "tocsin; hit"]
    assert answers[1].json()["data"]["address"] == "stx"


async def test_status_and_metrics_show_who_spends_what(tmp_path: Path) -> None:
    async with opened(tmp_path, watched=False) as made:
        for _ in range(3):
            await made.get(f"{BASE}{names(made)}", **SITE)
        use = await use_of(made)
        metrics = (await made.get("/metrics")).body.decode()
    assert use == {"lookups": 3, "calls": 1, "hits": 2, "stale": 0, "refused": 0, "failed": 0}
    lines = [line for line in metrics.splitlines() if line.startswith("tocsin_lookup")]
    assert lines == [
        'tocsin_lookup_calls_total{key="site"} 1',
        'tocsin_lookups_total{key="site",outcome="asked"} 1',
        'tocsin_lookups_total{key="site",outcome="hit"} 2',
        'tocsin_lookups_total{key="site",outcome="stale"} 0',
        'tocsin_lookups_total{key="site",outcome="refused"} 0',
        'tocsin_lookups_total{key="site",outcome="failed"} 0',
    ]


async def test_over_a_real_connection(tmp_path: Path) -> None:
    """As a site asks: the server decodes the path, and the answer has its age and its length."""
    async with opened(tmp_path) as made, serving(made.app) as port:
        wallet = made.simulator.chain.wallets[0].address

        def ask(path: str) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers={**SITE, "Accept-Encoding": "gzip"})
            response = connection.getresponse()
            body = response.read()
            connection.close()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, body

        targets = [f"{BASE}/v1/addresses/stacks/{wallet}"] * 2 + [f"{BASE}/v1/names/..%2f..%2fv2%2finfo"]
        first, again, outside = [await asyncio.to_thread(ask, target) for target in targets]
    assert (first[0], again[0], outside[0]) == (200, 200, 403)
    assert first[2] == again[2]
    assert (again[1]["cache-status"], again[1]["content-length"]) == ("tocsin; hit", str(len(first[2])))
    assert again[1]["x-content-type-options"] == "nosniff"


def make(directory: Path) -> Path:
    directory.mkdir()
    return directory


def break_upstream(simulator: Simulator, fault: str) -> None:
    """Let Hiro answer with this status, or with a page, or not at all."""
    if fault.isdigit():
        simulator.faults.add(SimulatedFault(kind="status", status=int(fault)))
    else:
        simulator.faults.add(SimulatedFault(kind="hang" if fault == "hang" else "wrong_json"))


async def test_the_simulator_counts_a_contract_call_twice() -> None:
    simulator = quiet_simulator(VirtualClock())
    asked = SimulatedRequest("POST", CALL.removeprefix(BASE), body=b'{"sender":"SP1","arguments":[]}')
    reply = simulator.handle("hiro", asked).reply
    assert reply.headers["x-ratelimit-cost-stacks"] == "2"


async def test_a_program_may_ask_more_at_once_than_a_visitor(tmp_path: Path) -> None:
    """A page of a site may need a hundred answers: its key lifts the limits of one client, a wrong one does not."""

    def slow(simulator: Simulator) -> SimulatedFetch:
        return SimulatedFetch(simulator, latency_s=1.0)

    async with opened(tmp_path, fetch=slow, reads_per_minute=30) as made:
        targets = [f"{BASE}/v1/names/name{number}.btc" for number in range(100)]
        answers = await asyncio.gather(*[made.get(target, **SITE) for target in targets])
        more = [(await made.get(target, **SITE)).status for target in targets * 3]
        wrong = await made.get(targets[0], **{"x-api-key": "a-wrong-key-of-nobody"})
    assert Counter(answer.status for answer in answers) == {404: 100}
    assert Counter(more) == {404: 300}
    assert (wrong.status, wrong.json()["code"]) == (429, "too_many_requests")
