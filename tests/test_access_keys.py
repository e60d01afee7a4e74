"""Several keys in one setting: whose each is, what it opens, and never a key in an error."""

import pytest

from tocsin.settings import AccessKey, SettingsError, access_keys, read

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"
admin = access_keys("operator", "admin", 20)


def test_a_bare_key_has_the_name_of_its_setting() -> None:
    """Most deployments have one key."""
    assert admin(OLD) == (AccessKey("admin", "operator", OLD),)


def test_keys_have_names() -> None:
    """With blanks around commas; two may have one name while one replaces the other."""
    assert admin(f"alice:{OLD}, bob:{NEW}") == (AccessKey("alice", "operator", OLD), AccessKey("bob", "operator", NEW))
    assert [key.name for key in admin(f"alice:{OLD},alice:{NEW}")] == ["alice", "alice"]


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
    assert OLD not in repr(read({"ADMIN_KEY": f"alice:{OLD}"}))
