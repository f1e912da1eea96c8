"""The findings of `arkqueue doctor` about the sign-in with a provider: settings with which nobody,
or an unintended person, could ever sign in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from arkqueue.config import Configuration
from arkqueue.config.openid import OpenId, is_safe_url
from arkqueue.config.receivers import read_key
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, ConfigurationError
from arkqueue.plan.globs import matches
from arkqueue.views.doctor import Checked, Diagnosis, Finding
from arkqueue.web.openid import RETURN, Provider

NAME: Final = "openid"
RULE: Final = "Persons can sign in with the provider of the configuration, and its entries mean something."


def with_openid(diagnosis: Diagnosis, session: Session, configuration: Configuration) -> Diagnosis:
    """A diagnosis of the database, and what is wrong with the sign-in. Asks the provider, for some seconds at most."""
    if configuration.openid is None:
        return diagnosis
    since = time.perf_counter()
    found = [
        Finding(check=NAME, archive=None, name="[openid]", task=None, run=None, what=what, remedy=remedy)
        for what, remedy in (*_of_settings(session, configuration, configuration.openid), *_of_provider(configuration, configuration.openid))
    ]  # fmt: skip
    checked = Checked(check=NAME, rule=RULE, seconds=time.perf_counter() - since, found=len(found), more=False)
    return Diagnosis(findings=[*diagnosis.findings, *found], checks=[*diagnosis.checks, checked])


def _of_settings(session: Session, configuration: Configuration, openid: OpenId) -> Iterator[tuple[str, str]]:
    if openid.client_secret_file is not None:
        try:
            if not read_key(openid.client_secret_file, "the client's secret of [openid]"):
                yield f"{openid.client_secret_file} is empty", "Write the secret that the provider gave into it."
        except ArkqueueError as error:
            yield f"{error.thing}: {error.fault}", error.remedy
    if not is_safe_url(configuration.pages_url):
        host = urlsplit(configuration.pages_url).netloc
        yield f"public_url is http, so that who listens between {host} and its browsers gets their sessions", "Serve the pages by https."  # fmt: skip
    names = [row.name for row in session.rows("archive_names")]
    for grant in openid.grants:
        for glob in grant.archives or ():
            # A pattern may be meant for archives that are added later.
            if not set(glob) & set("*?[!") and not any(matches((glob,), name) for name in names):
                yield f"the group {grant.group} has the scope {grant.scope} for {glob}, which no archive is called", "Correct archives of that [[openid.grants]], or add the archive."  # fmt: skip
    says_persons = bool(openid.persons or openid.author_claims)
    if says_persons and not any(grant.scope in ("approve", "admin") for grant in openid.grants):
        yield "says which authors persons are, but no group may approve anything", "Give a group the scope approve, or take persons and author_claims away."  # fmt: skip


def _of_provider(configuration: Configuration, openid: OpenId) -> Iterator[tuple[str, str]]:
    try:
        asyncio.run(Provider(openid, configuration.pages_url + RETURN).check())
    except ConfigurationError:
        return  # of the secret, which `_of_settings` has read, too
    except ArkqueueError as error:
        remedy = error.remedy if "doctor" not in error.remedy else "Correct issuer of [openid], or ask the provider's administrator."  # fmt: skip
        yield f"{error.thing} {error.fault}", remedy
