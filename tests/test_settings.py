"""Settings are read together, and every problem is reported with its fix."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import settings as values
from tocsin.scheduler.slots import PAUSE_MAX_MS
from tocsin.settings import (
    ALL,
    CADENCE_MAX_MS,
    CADENCE_MIN_MS,
    SLICE_MAX_MS,
    SLICE_MIN_MS,
    AccessKey,
    Setting,
    Settings,
    SettingsError,
    access_keys,
    lookup_share,
    read,
    read_env_file,
    secret_values,
    setting_of,
)
from tocsin.text import long_duration
from tocsin.upstream.registry import upstreams

HOOK = "be4ab3ed-b606-4fe0-97c4-6c0b1ac9b185"
OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"
read_keys = access_keys("operator", "admin", 20)
PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def test_nothing_set_gives_the_defaults() -> None:
    """An empty environment is fine, and the admin routes are closed."""
    assert read({}) == Settings()
    assert read({}).admin_key == ()


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_every_example_is_accepted(known: Setting) -> None:
    """The examples in messages and in the docs work."""
    known.parse(known.example)


def test_all_problems_are_reported_at_once_with_an_example_and_without_the_secret() -> None:
    """One start, one list: names, problems, examples; a wrong secret is not repeated."""
    wrong = {
        "TOCSIN_PORT": "eighty",
        "TOCSIN_TENERO_CADENCE": "5 minutes",
        "ADMIN_KEY": "s3\n",
        "HIRO_API_URL": "api.hiro.so",
        "TOCSIN_TENERO_CADENSE": "5m",
    }
    with pytest.raises(SettingsError) as caught:
        read(wrong)

    message = str(caught.value)
    assert len(message.splitlines()) == 1 + 5
    assert "TOCSIN_PORT: 'eighty' is not a whole number from 0 to 65535. Example: TOCSIN_PORT=8787" in message
    assert "Did you mean TOCSIN_TENERO_CADENCE?" in message
    assert "s3" not in message


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TOCSIN_SWEEP_SLICE": "15m"}, "must be shorter than TOCSIN_SWEEP_CADENCE"),
        ({"TOCSIN_TENERO_CADENCE": "4m"}, "must be shorter than TOCSIN_TENERO_CADENCE"),
        ({"COMPETITION_END": "5"}, "must be after COMPETITION_START"),
        ({"WORKER_LOGS_URL": "https://logs.example"}, "give both or neither"),
        ({"TOCSIN_ALERT_FORMAT": "slack"}, "TOCSIN_ALERT_URL: is not set"),
        ({"TOCSIN_ALERT_KEY": "a-key"}, "TOCSIN_ALERT_URL: is not set"),
        ({"TOCSIN_ALERT_URL": "https://e.org", "TOCSIN_ALERT_FORMAT": "pagerduty"}, "needs its routing key"),
        ({"TOCSIN_CHAINHOOK_ID": HOOK}, "Set HIRO_API_KEY as well"),
        ({"TOCSIN_CHAINHOOK_REENABLE": "yes"}, "Set TOCSIN_CHAINHOOK_ID"),
    ],
)
def test_values_that_do_not_fit_together_are_reported(environment: dict[str, str], expected: str) -> None:
    """Each value is fine alone."""
    with pytest.raises(SettingsError, match=expected):
        read(environment)


def test_a_slice_must_leave_time_for_the_alarm() -> None:
    """An alarm's handler ends after 15 minutes on both platforms: no cadence makes a longer slice work."""
    with pytest.raises(SettingsError) as caught:
        read({"TOCSIN_SWEEP_CADENCE": "1h", "TOCSIN_SWEEP_SLICE": "59m"})

    (problem,) = str(caught.value).splitlines()[1:]
    assert problem == (
        "  TOCSIN_SWEEP_SLICE: may be 14 minutes at most, whatever the cadence: an alarm's handler ends after"
        " 15 minutes. Example: TOCSIN_SWEEP_SLICE=14m"
    )
    assert read({"TOCSIN_SWEEP_CADENCE": "1h", "TOCSIN_SWEEP_SLICE": "14m"}).sweep_slice == 840_000


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("TOCSIN_TENERO_CADENCE", "99999d", "is not a duration from 1 second to 7 days"),
        ("TOCSIN_SWEEP_CADENCE", "999999999999d", "is not a duration from 1 second to 7 days"),
        ("TOCSIN_SWEEP_CADENCE", "8d", "is not a duration from 1 second to 7 days"),
        ("TOCSIN_TENERO_CADENCE", "999ms", "is not a duration from 1 second to 7 days"),
        ("TOCSIN_TENERO_SLICE", "99ms", "is not a duration of at least 100 ms"),
        ("HIRO_API_URL", "api.hiro.so", "does not begin with https:// or http://"),
        ("HIRO_API_URL", "ftp://api.hiro.so", "does not begin with https:// or http://"),
        ("HIRO_API_URL", "https://", "has no host"),
        ("HIRO_API_URL", "https://x:99999", "is not a URL: its host or its port is wrong"),
        ("HIRO_API_URL", "https://[", "is not a URL: its host or its port is wrong"),
        ("HIRO_API_URL", "https://api.hiro.so/extended/v1", "ends with /extended/v1, which Tocsin adds itself"),
        ("HIRO_API_URL", "https://api.hiro.so/extended/", "ends with /extended, which Tocsin adds itself"),
        ("TENERO_API_URL", "https://api.tenero.io/v1/stacks/", "ends with /v1/stacks, which Tocsin adds"),
        ("TENERO_API_URL", "https://api.tenero.io/v1", "ends with /v1, which Tocsin adds itself"),
        ("HIRO_API_URL", "https://api.hiro\n.so", "has a space, a line break or another character"),
        ("HIRO_API_URL", "https://api.hiro.so/a b", "has a space, a line break or another character"),
        ("WORKER_LOGS_URL", "https://lögs.example", "has a space, a line break or another character"),
        ("HIRO_API_URL", "https://bob@x", "has a user name or a password"),
        ("HIRO_API_URL", "https://x/?key=1", "has a query or a fragment"),
        ("TOCSIN_HOST", "a..b", "is not an address or a host name"),
        ("TOCSIN_HOST", "a" * 64, "is not an address or a host name"),
    ],
)
def test_each_wrong_value_has_its_sentence(name: str, value: str, problem: str) -> None:
    """With an example that works."""
    with pytest.raises(SettingsError) as caught:
        read({name: value})

    line = str(caught.value).splitlines()[1]
    assert re.match(rf"  {name}: .* {re.escape(problem)}", line)
    assert f"Example: {name}=" in line


@pytest.mark.parametrize("days", ["7d", "168h"])
def test_the_longest_cadence(days: str) -> None:
    """The bounds are part of the range."""
    assert read({"TOCSIN_SWEEP_CADENCE": days}).sweep_cadence == 604_800_000
    assert read({"TOCSIN_TENERO_CADENCE": "1s", "TOCSIN_TENERO_SLICE": "100ms"}).tenero_slice == 100


@pytest.mark.parametrize(
    "value",
    [
        "https://bob:hunter2@x/?q",
        "https://bob:hunter2@x",
        "https://bob:hun//hunter2@x/y",
        "bob:hunter2@x",
        "https://bob:a@hunter2@x",
        "https://bob:hunter2@b@x",
        "https://@hunter2@x",
        "https://bob:" + "hunter2" * 20 + "@x",
        "https://bob:hunter2 @x",
        "https://x/?key=hunter2",
        "https://x/#hunter2",
    ],
)
def test_a_password_in_a_url_is_not_shown(value: str) -> None:
    """The error names the setting and the problem, never what may be a secret."""
    with pytest.raises(SettingsError) as caught:
        read({"HIRO_API_URL": value})

    assert "hunter2" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TOCSIN_FOO", "docs/settings.md lists all names."),
        ("TOCSIN_DATABASE_URL", "docs/settings.md lists all names."),
        ("TOCSIN_PROT", "Did you mean TOCSIN_PORT?"),
        ("TOCSIN_DATADIR", "Did you mean TOCSIN_DATA_DIR?"),
        ("TOCSIN_SWEEP_CADENSE", "Did you mean TOCSIN_SWEEP_CADENCE?"),
    ],
)
def test_only_a_name_that_is_close_is_suggested(name: str, hint: str) -> None:
    """The prefix that all have in common does not make names alike."""
    with pytest.raises(SettingsError) as caught:
        read({name: "x"})

    assert str(caught.value).endswith(f"{name}: there is no such setting. {hint}")


def test_the_docs_state_every_bound_of_a_duration() -> None:
    """In one table of docs/settings.md."""
    page = PAGE.read_text()
    pause = long_duration(PAUSE_MAX_MS)

    assert f"| {long_duration(CADENCE_MIN_MS)} | {long_duration(CADENCE_MAX_MS)} |" in page
    assert f"| {SLICE_MIN_MS} ms | {long_duration(SLICE_MAX_MS)}, and less than the task's cadence |" in page
    assert f"`action=pause&for=` | 1 ms | {pause} |" in page


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([known.name for known in ALL]), st.text(max_size=30)))
def test_any_text_is_accepted_or_refused_with_our_error(environment: dict[str, str]) -> None:
    """No value of any setting raises anything else."""
    message = ""
    try:
        read(environment)
    except SettingsError as error:
        message = str(error)

    problems = [line for line in message.splitlines()[1:] if line.startswith("  ")]
    assert all(re.match(r"  [A-Z_]+( and [A-Z_]+)?: ", line) for line in problems)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("https://hooks.example.org/a/b?c=d", True),
        ("http://127.0.0.1:9000/hook", True),
        ("http://localhost/", True),
        ("http://[::1]:9000/", True),
        ("http://127.0.0.1.example.org/hook", False),
        ("http://localhost.example.org/hook", False),
        ("http://example.org/127.0.0.1", False),
        ("http://127.0.0.1@example.org/hook", False),
        ("http://127.0.0.2/hook", False),
        ("http://[::ffff:198.51.100.7]/hook", False),
        ("https:///hook", False),
        ("https://hooks.example.org:0/", False),
        ("http://hooks.example.org/a", False),
        ("https://name:password@hooks.example.org/", False),
        ("https://hooks.example.org/#part", False),
        ("https://hooks.example.org:99999/", False),
        ("ftp://127.0.0.1/", False),
        ("https://hooks.example.org/a b", False),
    ],
)
def test_alerts_and_heartbeats_leave_over_tls_or_not_at_all(text: str, *, accepted: bool) -> None:
    """Plain HTTP is for a receiver on the same machine. A refused value is not repeated: it may hold a token."""
    for name in ("TOCSIN_ALERT_URL", "TOCSIN_HEARTBEAT_URL"):
        if accepted:
            assert text in secret_values(read({name: text}))
        else:
            with pytest.raises(SettingsError, match="is not an https URL") as caught:
                read({name: text})
            assert text not in str(caught.value)


def test_a_hook_is_named_by_its_uuid_or_its_path() -> None:
    """The path of the documentation is the default; a client of Hiro's uses another one."""
    key = {"HIRO_API_KEY": "a-hiro-key"}

    assert read({**key, "TOCSIN_CHAINHOOK_ID": HOOK}).chainhook_id == HOOK
    assert read({**key, "TOCSIN_CHAINHOOK_ID": f"/chainhooks/me/{HOOK}"}).chainhook_id == f"/chainhooks/me/{HOOK}"
    with pytest.raises(SettingsError, match="is neither a UUID nor a path"):
        read({**key, "TOCSIN_CHAINHOOK_ID": f"https://api.hiro.so/{HOOK}"})


def test_an_env_file_is_read() -> None:
    """Comments, blank lines, export and quotes; a line that is neither is named by number."""
    text = "# keys\n\nexport ADMIN_KEY='a secret key'\nTOCSIN_PORT = 9000\nURL=https://x/?a=b\n"

    assert read_env_file(text.encode()) == {"ADMIN_KEY": "a secret key", "TOCSIN_PORT": "9000", "URL": "https://x/?a=b"}
    with pytest.raises(SettingsError, match="line 2"):
        read_env_file(b"A=1\nnonsense\n")


def test_every_secret_is_known_to_be_one() -> None:
    """Redaction covers all keys and secrets, and both of a pair."""
    secrets: dict[str, Any] = {}
    for setting in fields(Settings):
        if setting_of(setting).secret:
            text = f"secret-of-{setting.name}"
            pair = tuple(AccessKey("alice", "operator", f"{text}-{number}") for number in (1, 2))
            secrets[setting.name] = pair if setting.default == () else text

    shown = {value for value in secrets.values() if isinstance(value, str)}
    pairs = {key.secret for value in secrets.values() if isinstance(value, tuple) for key in value}
    assert set(secret_values(Settings(**secrets))) == shown | pairs
    assert len(pairs) == 12
    capabilities = {"alert_url", "heartbeat_url"}  # anybody who knows such a URL can post to it
    named = {one.name for one in fields(Settings) if re.search("key|secret", one.name)}
    assert named | capabilities == set(secrets)


def test_every_wrong_line_of_a_file_is_reported() -> None:
    """Not only the first; and a file in another encoding is an error with a sentence, not a traceback."""
    with pytest.raises(SettingsError, match=r"(?s)line 1:.*line 3:"):
        read_env_file(b"what\nA=1\n1B=2\n")
    with pytest.raises(SettingsError, match="UTF-8"):
        read_env_file("A=ä".encode("latin-1"))


@pytest.mark.parametrize("name", ["ADMIN_KEY", "CRON_SECRET", "CHAINHOOK_SECRET"])
def test_a_key_that_can_be_guessed_is_refused(name: str) -> None:
    """With the command that makes a good one; a key of an upstream has the length that the upstream gave it."""
    with pytest.raises(SettingsError, match=rf"{name}: its value is too short: .* `openssl rand -hex 16`"):
        read({name: "password"})
    with pytest.raises(SettingsError, match=r"CHAINHOOK_SECRET: its value is too short"):
        read({"CHAINHOOK_SECRET": "a-long-random-text,short"})

    read({name: "a-long-random-text"})
    assert read({"HIRO_API_KEY": "0123abcd"}).hiro_api_key == "0123abcd"


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (values.integer(1, 9), "1", 1),
        (values.integer(1, 9), " 9 ", 9),
        (values.integer(1, 9), "0", None),
        (values.integer(1, 9), "10", None),
        (values.integer(0, 10**15), "1" * 16, None),
        (values.number(0, 1), "0", 0.0),
        (values.number(0, 1), "1", 1.0),
        (values.number(0, 1), "1.000000001", None),
        (values.limit, " none ", "no limit"),
        (values.limit, "1", 1),
        (values.limit, "0", None),
        (values.origins, " none ", ()),
        (values.origins, "HTTPS://Site.Example, *", ("https://site.example", "*")),
        (values.origins, "https://site.example/", None),
        (values.networks, "10.0.0.7/8, ::1", ("10.0.0.0/8", "::1/128")),
        (values.networks, "10.0.0.0/8,", None),
        (values.one_of("DEBUG", "INFO"), "debug", "DEBUG"),
        (values.one_of("json", "text"), " JSON ", "json"),
        (values.one_of("json", "text"), "xml", None),
        (values.word, "a" * 32, "a" * 32),
        (values.word, "a" * 33, None),
        (values.host_name, f"{'a' * 63}.example", f"{'a' * 63}.example"),
        (values.host_name, "a..b", None),
        (values.secret, "1234", "1234"),
        (values.secret, "x" * 256, "x" * 256),
        (values.secret, "123", None),
        (values.secret, "x" * 257, None),
        (values.secret, "a secret ", None),
        (values.own_key, "x" * 16, "x" * 16),
        (values.own_key, "x" * 15, None),
        (values.yes_or_no, " ON ", True),
        (values.yes_or_no, "0", False),
        (values.yes_or_no, "maybe", None),
        (values.url, "https://x/y//", "https://x/y"),
        (values.url, "https://x:0/", "https://x:0"),
        (values.url, "https://x:65536/", None),
    ],
)
def test_a_value_is_read_up_to_its_bounds(parse: Callable[[str], Any], text: str, expected: Any) -> None:
    """None stands for a refusal: the last value that is taken, and the first that is not."""
    if expected is None:
        with pytest.raises(ValueError):
            parse(text)
    else:
        assert parse(text) == (None if expected == "no limit" else expected)


def test_a_bare_key_has_the_name_of_its_setting() -> None:
    """Most deployments have one key."""
    assert read_keys(OLD) == (AccessKey("admin", "operator", OLD),)


def test_keys_have_names() -> None:
    """With blanks around commas; two may have one name while one replaces the other."""
    assert read_keys(f"alice:{OLD}, bob:{NEW}") == (
        AccessKey("alice", "operator", OLD),
        AccessKey("bob", "operator", NEW),
    )
    assert [key.name for key in read_keys(f"alice:{OLD},alice:{NEW}")] == ["alice", "alice"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice:short", "is too short"),
        (f"alice:{OLD},bob:fifteen-letters", r"is too short.*\(key 2 of 2\)"),
        (f"{OLD},", r"\(key 2 of 2\)"),
        (f"al ice:{OLD}", "not a name"),
        (f":{OLD}", "not a name"),
        (f"alice:{OLD},bob:{OLD}", "the same key twice"),
        (",".join(f"{OLD}{number}" for number in range(21)), "more than 20 keys"),
    ],
)
def test_a_wrong_list_is_refused_without_showing_a_key(text: str, problem: str) -> None:
    """The sentence names the key and what is wrong with it."""
    with pytest.raises(SettingsError, match=problem) as refused:
        read({"ADMIN_KEY": text})

    assert OLD not in str(refused.value)
    assert "fifteen-letters" not in str(refused.value)


def test_a_key_is_of_one_role() -> None:
    """A key that may look and act at once would be an operator's by accident."""
    with pytest.raises(SettingsError, match="TOCSIN_VIEWER_KEY: shares a key with ADMIN_KEY"):
        read({"ADMIN_KEY": f"alice:{OLD}", "TOCSIN_VIEWER_KEY": f"carol:{OLD}"})


def test_the_cron_secret_has_two_keys_at_most_and_chainhook_no_names() -> None:
    """Two while one replaces the other. Hiro may give a secret with a colon in it."""
    settings = read({"CRON_SECRET": f"{OLD},{NEW}", "CHAINHOOK_SECRET": f"a:{OLD},{NEW}"})

    assert [key.secret for key in settings.cron_secret] == [OLD, NEW]
    assert [key.secret for key in settings.chainhook_secret] == [f"a:{OLD}", NEW]
    with pytest.raises(SettingsError, match="more than 2 keys"):
        read({"CRON_SECRET": f"{OLD},{NEW},{OLD}{NEW}"})


def test_a_key_is_not_shown() -> None:
    """Settings that end up in a traceback have no key in them."""
    assert OLD not in repr(read({"ADMIN_KEY": f"alice:{OLD}", "TOCSIN_ALERT_URL": f"https://alerts.example/{OLD}"}))


def test_keys_of_programs_have_a_share() -> None:
    """30% unless given; two keys of one name, while one replaces the other, have one share."""
    text = "site:40%:a-key-of-the-site-1,site:40%:a-key-of-the-site-2,board:a-key-of-a-board-3"
    keys = read({"TOCSIN_LOOKUP_KEY": text}).lookup_key
    shown = [(key.name, key.role, key.secret, key.share) for key in keys]
    assert shown == [
        ("site", "lookup", "a-key-of-the-site-1", 0.4),
        ("site", "lookup", "a-key-of-the-site-2", 0.4),
        ("board", "lookup", "a-key-of-a-board-3", 0.3),
    ]
    assert lookup_share(keys) == 0.7
    assert upstreams(Settings(lookup_key=keys))["hiro"].quota.request_share == 0.8
    assert upstreams(Settings(lookup_key=keys))["tenero"].quota.request_share == 0.1
    assert upstreams(Settings())["hiro"].quota.request_share == 0.1


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "TOCSIN_LOOKUP_KEY",
            "site:50%:a-key-of-the-site-1,board:a-key-of-a-board-2,x:10%:a-key-of-x-is-this-3",
            "80%",
        ),
        ("TOCSIN_LOOKUP_KEY", "site:0%:a-key-of-the-site-1", "0%"),
        ("TOCSIN_LOOKUP_KEY", "site:40%:short", "too short"),
        ("TOCSIN_LOOKUP_PATHS", "hiro/v1/names/*", "not an upstream's path with a time"),
        ("TOCSIN_LOOKUP_PATHS", "ripple/v1/names/*=1m", "not an upstream's path with a time"),
        ("TOCSIN_LOOKUP_PATHS", "hiro/v1/../v2/*=1m", "not an upstream's path with a time"),
        ("TOCSIN_LOOKUP_PATHS", "hiro/v1/names/.*=1m", "not an upstream's path with a time"),
        ("TOCSIN_LOOKUP_PATHS", "hiro/v1/names/*=0s", "not a duration"),
    ],
)
def test_wrong_look_ups_are_explained(name: str, text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as refused:
        read({name: text})
    assert "a-key-of" not in str(refused.value)


def test_each_role_has_keys_of_its_own() -> None:
    with pytest.raises(SettingsError, match="TOCSIN_LOOKUP_KEY: shares a key with ADMIN_KEY"):
        read({"ADMIN_KEY": "alice:one-key-for-everything", "TOCSIN_LOOKUP_KEY": "site:one-key-for-everything"})
