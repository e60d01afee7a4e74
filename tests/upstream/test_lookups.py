"""Look-ups in virtual time: how programs share the calls, and what is kept of the answers."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.errors import ObjectReset
from holdfast.testing.virtual_time import START_MS
from support.scripted_fetch import Request, always, response
from support.upstreams import Wired, wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.upstream.budget import Quota
from tocsin.upstream.lookups import ANSWER_BYTES_MAX, Lookup, LookupAnswer, LookUps
from tocsin.upstream.windows import Lane

HALF = Quota(second=20, minute=500, month=150_000, request_share=0.6, is_cap=True)  # of the calls for one program
SMALL = replace(HALF, month=30_000)
DAY_S = 86_400


def question(target: str, key: str = "site", share: float = 0.5, fresh_s: int = 60) -> Lookup:
    """A question of a program with this share of all calls; the lane has six tenths of them."""
    return Lookup("hiro", target, None, "/*", fresh_s, key, share / 0.6)


async def ask(look_ups: LookUps, wired: Wired, asked: Lookup) -> LookupAnswer:
    return await look_ups.answer(wired.client, asked, wired.request(), wired.clock)


async def flood(look_ups: LookUps, wired: Wired, key: str, share: float, every_s: float, got: Counter[str]) -> None:
    """Ask a new question all the time."""
    for number in range(10**9):
        answer = await ask(look_ups, wired, question(f"/{key}/{number}", key, share))
        got[f"{key} {answer.how}"] += 1
        await wired.clock.sleep(every_s)


async def test_a_flood_costs_neither_tasks_nor_submissions_nor_another_program_anything() -> None:
    """Three days: one program asks without end, one little; tasks and submissions make their calls as without them."""
    wired, look_ups, got = wired_hiro(always(response({})), SMALL), LookUps(), Counter[str]()
    floods = [
        asyncio.create_task(flood(look_ups, wired, "greedy", 0.4, 35.0, got)),
        asyncio.create_task(flood(look_ups, wired, "modest", 0.1, 1_500.0, got)),
    ]
    fewest = 10.0**9
    for _ in range(3 * 96):
        for _ in range(3):  # a sweep, whose tenth of a minute's calls is never refused
            got[f"task {(await wired.ask(session=wired.task())).kind}"] += 1
        got[f"submission {(await wired.ask(session=wired.request())).kind}"] += 1
        fewest = min(fewest, wired.limiter.calls_left(Lane.REQUEST))
        await wired.clock.sleep(900)
    for each in floods:
        each.cancel()
    await asyncio.gather(*floods, return_exceptions=True)

    assert (got["task ok"], got["task limited"]) == (864, 0)
    assert (got["submission ok"], got["submission limited"]) == (288, 0)
    assert got["modest miss"] >= 172
    assert got["modest refused"] == 0
    assert got["greedy refused"] > 200
    assert fewest > 60


async def test_a_program_alone_may_use_what_nobody_else_does() -> None:
    """Its share bounds how much is left for others, not how much it may use of what is left."""
    wired, look_ups, got = wired_hiro(always(response({})), SMALL), LookUps(), Counter[str]()
    work = asyncio.create_task(flood(look_ups, wired, "site", 0.5, 50.0, got))
    await asyncio.sleep(2 * DAY_S)
    used = got["site miss"]
    await asyncio.sleep(2 * DAY_S)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    of_lane = 0.6 * 30_000 / ((wired.limiter.status().month_ends_at - START_MS) / DAY_S / 1000)
    assert 0.8 * of_lane < (got["site miss"] - used) / 2 < 1.1 * of_lane
    assert got["site refused"] > 200


async def test_a_refusal_names_a_time_at_which_it_is_not_one() -> None:
    """Whatever was used before, and however the time of the month."""
    wired, look_ups = wired_hiro(always(response({})), HALF), LookUps()
    answer, number = await ask(look_ups, wired, question("/")), 0
    while answer.how == "miss":
        number += 1
        await wired.clock.sleep(0.5)
        answer = await ask(look_ups, wired, question(f"/{number}"))
    for again in range(3):
        assert answer.code == "share_used"
        assert answer.retry_s is not None
        await wired.clock.sleep(answer.retry_s)
        assert (await ask(look_ups, wired, question(f"/again/{again}"))).how == "miss"
        answer = await ask(look_ups, wired, question(f"/more/{again}"))


async def test_the_cost_of_a_path_is_learned_from_its_answers() -> None:
    """A permit of the right size is asked for from the second call on."""
    wired, look_ups = wired_hiro(always(response({}, headers={"x-ratelimit-cost-stacks": "5"})), HALF), LookUps()
    asked = []
    for number in range(3):
        session = wired.request()
        await look_ups.answer(wired.client, question(f"/{number}"), session, wired.clock)
        asked.append(session.calls)
    assert asked == [5, 5, 5]
    assert look_ups.uses["site"].calls == 15
    assert wired.limiter.status().spent.month == 15


async def test_a_contract_call_takes_a_permit_for_two_calls() -> None:
    """Before Hiro says what it costs."""
    wired = wired_hiro(always(response({})), HALF)
    wired.fetch.method = "POST"
    await ask(LookUps(), wired, replace(question("/"), body="{}"))
    assert wired.limiter.status().spent.month == 2


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (response({"error": "no"}, status=400), 400, "upstream_refused"),
        (response({"error": "no"}, status=422), 422, "upstream_refused"),
        (response({"message": "Route GET:/x not found"}, status=404), 502, "upstream_refused"),
        (response({}, status=302, headers={"location": "https://other.test/"}), 502, "upstream_refused"),
        (response({}, status=410), 410, "upstream_gone"),
    ],
)
async def test_a_question_that_the_upstream_refuses_has_no_old_answer(
    refusal: FetchResponse, status: int, code: str
) -> None:
    """Neither now nor later. A path that the upstream does not know is no fact, as 404 would be."""
    answers = [response({"a": 1})]
    wired, look_ups = wired_hiro(lambda _: answers[-1]), LookUps()
    await ask(look_ups, wired, question("/x"))
    await asyncio.sleep(61)
    answers.append(refusal)
    refused = await ask(look_ups, wired, question("/x"))
    answers.append(response({}, status=503))
    later = await ask(look_ups, wired, question("/x"))
    assert (refused.how, refused.status, refused.code) == ("failed", status, code)
    assert (later.status, later.retry_s) == (503, 5)


@pytest.mark.parametrize(("fresh_s", "absent_s"), [(60, 60), (21_600, 300)])
async def test_what_does_not_exist_is_fresh_for_five_minutes_at_most(fresh_s: int, absent_s: int) -> None:
    wired = wired_hiro(always(response({"error": "Not Found"}, status=404)))
    assert (await ask(LookUps(), wired, question("/x", fresh_s=fresh_s))).fresh_s == absent_s


async def test_an_upstream_that_limits_us_is_named_with_its_time() -> None:
    """For those who wait for the same call too, and in whole seconds, rounded up."""
    limits = response({}, status=429, headers={"retry-after": "8.5"})
    wired, look_ups = wired_hiro(always(limits), latency_s=1.0), LookUps()
    answers = await asyncio.gather(*[ask(look_ups, wired, question("/x")) for _ in range(3)])
    assert {(each.how, each.status, each.code, each.retry_s) for each in answers} == {
        ("refused", 429, "upstream_limited", 9)
    }
    assert (look_ups.uses["site"].refused, look_ups.uses["site"].hits) == (3, 0)


async def test_the_answers_that_are_kept_have_a_bound() -> None:
    """Of bytes: the one that was not used for longest goes first; a very long one is not kept."""
    sizes = {"/long": ANSWER_BYTES_MAX}

    def answer(request: Request) -> FetchResponse:
        path = request.url.removeprefix("https://hiro.test")
        return response(json.dumps("x" * sizes.get(path, 1_000)))

    wired, look_ups = wired_hiro(answer), LookUps(bytes_max=8_000)
    for path in ("/1", "/2", "/3", "/1", "/4", "/long", "/1", "/3", "/4", "/2", "/long"):
        await ask(look_ups, wired, question(path))
    calls = [request.url.removeprefix("https://hiro.test") for request in wired.fetch.requests]
    assert calls == ["/1", "/2", "/3", "/4", "/long", "/2", "/long"]


async def test_callers_that_leave_do_not_stop_the_call_for_others() -> None:
    """And a reset of the object is an error of the platform, not a fact."""
    wired, look_ups = wired_hiro(always(response({"a": 1})), latency_s=1.0), LookUps()
    leaving, staying = [asyncio.create_task(ask(look_ups, wired, question("/x"))) for _ in range(2)]
    await asyncio.sleep(0.5)
    leaving.cancel()
    assert (await staying).body == '{"a": 1}'
    assert len(wired.fetch.requests) == 1

    waiting = asyncio.create_task(ask(look_ups, wired, question("/y")))
    await asyncio.sleep(0.5)
    for task in look_ups._under_way.values():  # as the end of the object does
        task.cancel()
    with pytest.raises(ObjectReset):
        await waiting
    assert (await ask(look_ups, wired, question("/y"))).how == "miss"
