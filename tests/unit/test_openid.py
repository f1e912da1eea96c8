"""The rights of a person, from the claims of a provider and the grants of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.config.openid import OpenId
from arkqueue.errors import ConfigurationError
from arkqueue.queue.sign_ins import Person
from arkqueue.queue.tokens import Scope, Token
from arkqueue.web.openid import NotSignedIn, person_of
from arkqueue.web.rights import PersonsToken, at, rights_of

NAMES = ("papers", "papers-2", "books")


def an_openid(*grants: dict[str, Any], **more: Any) -> OpenId:
    return OpenId(issuer="https://login.example", client_id="queue", grants=grants, **more)


def rights(openid: OpenId, *groups: str, **more: Any) -> Token | None:
    person = Person(
        **{"issuer": openid.issuer, "subject": "1", "person": "ann", "groups": groups, "authors": (), **more}
    )
    return rights_of(openid, person, lambda: NAMES)


READERS = {"group": "all", "scope": "read"}
EDITORS = {"group": "editors", "scope": "operate", "archives": ["papers*"]}
CHIEFS = {"group": "chiefs", "scope": "approve", "archives": ["papers"]}


def test_each_archive_has_the_widest_scope_that_a_group_gives() -> None:
    openid = an_openid(READERS, EDITORS, CHIEFS)
    token = rights(openid, "all", "editors", "chiefs")
    assert isinstance(token, PersonsToken)
    assert (token.scope, token.archives) == (Scope.READ, None)
    assert {name: at(token, name).scope for name in NAMES} == {
        "papers": Scope.APPROVE,
        "papers-2": Scope.OPERATE,
        "books": Scope.READ,
    }
    assert at(token, "papers").archives == ["papers"]
    assert at(token, "unknown") is token


def test_without_an_archive_in_mind_a_person_may_what_they_may_everywhere() -> None:
    token = rights(an_openid(READERS, EDITORS, CHIEFS), "editors", "chiefs")
    assert token is not None
    assert (token.scope, token.archives) == (Scope.OPERATE, ["papers", "papers-2"])
    assert not token.covers("books")
    assert at(token, "books") is token


def test_a_narrower_group_takes_nothing_away() -> None:
    everywhere = {"group": "admins", "scope": "admin"}
    token = rights(an_openid(everywhere, EDITORS), "admins", "editors")
    assert token is not None
    assert at(token, "papers").scope is Scope.ADMIN


@pytest.mark.parametrize("groups", [(), ("others",), ("ALL",)])
def test_other_groups_give_nothing(groups: tuple[str, ...]) -> None:
    assert rights(an_openid(READERS), *groups) is None


def test_a_person_of_another_provider_has_no_rights() -> None:
    assert rights(an_openid(READERS), "all", issuer="https://evil.example") is None


def test_a_group_whose_archives_are_not_there_yet_sees_nothing() -> None:
    token = rights(an_openid({"group": "a", "scope": "admin", "archives": ["new-*"]}), "a")
    assert token is not None
    assert (token.scope, token.archives) == (Scope.READ, [])


def test_a_person_is_the_authors_that_the_configuration_and_the_provider_name() -> None:
    openid = an_openid(
        READERS,
        persons=[{"person": "ann", "authors": ["Ann <ann@example.org>"]}, {"person": "ben", "authors": ["ben"]}],
    )
    token = rights(openid, "all", authors=("ann",))
    assert token is not None
    assert token.authors == ["Ann <ann@example.org>", "ann"]


CLAIMS = {
    "sub": "1",
    "preferred_username": "ann",
    "groups": ["all", "x"],
    "email": "ann@example.org",
    "realm": {"roles": ["all"]},
}


def test_of_the_groups_only_those_are_kept_that_the_configuration_names() -> None:
    assert person_of(an_openid(READERS), CLAIMS) == Person("https://login.example", "1", "ann", ("all",), ())
    assert person_of(an_openid(READERS, groups="realm.roles"), CLAIMS).groups == ("all",)
    named_with_dots = {**CLAIMS, "https://example.org/groups": ["all"]}
    assert person_of(an_openid(READERS, groups="https://example.org/groups"), named_with_dots).groups == ("all",)


def test_an_address_makes_an_author_once_it_is_verified() -> None:
    openid = an_openid(READERS, author_claims=["email", "preferred_username", "nothing"])
    assert person_of(openid, CLAIMS).authors == ("ann",)
    assert person_of(openid, CLAIMS | {"email_verified": "true"}).authors == ("ann",)
    assert person_of(openid, CLAIMS | {"email_verified": True}).authors == ("ann@example.org", "ann")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sub": None}, "has no proper sub"),
        ({"sub": "x" * 256}, "has no proper sub"),
        ({"sub": 7}, "has no proper sub"),
        ({"preferred_username": " "}, "is missing, empty, longer than 200 characters, or has control characters"),
        (
            {"preferred_username": "a\u202eb"},
            "is missing, empty, longer than 200 characters, or has control characters",
        ),
        ({"preferred_username": ["ann"]}, "names nobody"),
        ({"groups": None}, "names no groups of ann"),
        ({"groups": {"all": 1}}, "names no groups of ann"),
        ({"groups": ["all", 7]}, "names no groups of ann"),
        ({"groups": ["all"] * 10_001}, "names no groups of ann"),
        ({"groups": ["<b>\n"]}, "is in no group that may see these pages (of these: <b>)"),
        ({"groups": []}, "(of these: none)"),
    ],
)
def test_claims_that_are_not_as_they_have_to_be_sign_nobody_in(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(NotSignedIn) as refused:
        person_of(an_openid(READERS), CLAIMS | wrong)
    assert said in refused.value.fault


def faults(tmp_path: Path, text: str) -> str:
    (tmp_path / "arkqueue.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        Configuration.load({"ARKQUEUE_HOME": str(tmp_path)})
    return str(caught.value)


def test_all_faults_of_the_tables_are_told_at_once(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        '[openid]\nissuer = "http://login.example"\nclient_id = ""\nsesion = "1h"\nclock_skew = "1h"\nscopes = ["profile"]\n'
        '[[openid.grants]]\ngrop = "a"\nscope = "hook"\narchives = ["a/b"]\n[[openid.persons]]\nperson = "ann"\nauthors = [" "]\n',
    )
    for fault in (
        "openid.issuer is not a valid issuer; write it like https://login.example.org/realms/work",
        "openid.client_id is empty",
        "openid.sesion is unknown (did you mean session?)",
        "openid.clock_skew must be from 1ms to 10m",
        'openid.scopes must be scopes without spaces, "openid" among them',
        "openid.grants[1].group is missing",
        "openid.grants[1].grop is unknown (did you mean group?)",
        "openid.grants[1].scope must be 'read', 'operate', 'approve' or 'admin'",
        "openid.grants[1].archives holds 'a/b', which no archive can be called",
        "openid.persons[1].authors holds somebody without a proper name",
    ):
        assert fault in told, told


GOOD = '[openid]\nissuer = "https://login.example"\nclient_id = "queue"\n'
GRANT = '[[openid.grants]]\ngroup = "a"\nscope = "read"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + GRANT, "openid needs public_url"),
        ('public_url = "https://q.example"\n' + GOOD, "has no [[openid.grants]], so that nobody could sign in"),
        ('public_url = "https://q.example"\n' + GOOD + GRANT + GRANT, "gives 'a' two scopes for the same archives"),
        ('openid = "https://login.example"', "openid must be a table"),
    ],
)
def test_what_does_not_fit_together_is_told(tmp_path: Path, text: str, said: str) -> None:
    assert said in faults(tmp_path, text)
