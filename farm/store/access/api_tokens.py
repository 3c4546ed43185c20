"""API tokens in the store: create, look up, revoke. Tokens are hashed and forgotten."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec, NotFound
from farm.keys.api_tokens import PREFIX, Scope, check_token_name, is_token, token_hash
from farm.store.tables import ApiToken

_NOTED_EVERY = dt.timedelta(minutes=1)


def add_token(
    session: Session,
    *,
    name: str,
    scope: Scope,
    secret_hash: str,
    now: dt.datetime,
    expires_at: dt.datetime | None,
) -> ApiToken:
    """Add a token that is valid from now on.

    Raises:
        InvalidSpec: the name is invalid, or another token has it, even a revoked one.
    """
    check_token_name(name)
    token = ApiToken(
        name=name, scope=scope, secret_hash=secret_hash, created_at=now, expires_at=expires_at
    )
    session.add(token)
    try:
        session.flush()
    except IntegrityError:
        # Not looked for before: of two that are added at once, the second finds out here.
        raise InvalidSpec(
            "NAME", name, "a name that no token has; `farm token revoke --remove` makes one free"
        ) from None
    return token


def list_tokens(session: Session) -> Sequence[ApiToken]:
    """Return all tokens by name, including expired and revoked ones."""
    return session.scalars(select(ApiToken).order_by(ApiToken.name)).all()


def revoke_token(session: Session, which: str, *, now: dt.datetime) -> tuple[str, bool]:
    """Revoke a token; return its name, and whether it was valid until now.

    `which` is the name or, for a leaked token, the token itself.

    Raises:
        NotFound: there is no such token.
    """
    token = _find(session, which)
    if token.revoked_at is not None:
        return token.name, False
    token.revoked_at = now
    session.flush()
    return token.name, True


def remove_token(session: Session, which: str) -> str:
    """Forget a token, so that its name is free; return the name. `which` is as for `revoke_token`.

    Raises:
        NotFound: there is no such token.
    """
    token = _find(session, which)
    session.delete(token)
    session.flush()
    return token.name


def has_tokens(session: Session) -> bool:
    """Tell whether there is a token, even one that is no longer valid.

    A farm that its first token has closed does not open again when the last one expires.
    """
    return session.scalar(select(ApiToken.id).limit(1)) is not None


def has_active_token(session: Session, *, now: dt.datetime) -> bool:
    """Tell whether there is a valid token."""
    return session.scalar(select(ApiToken.id).where(_counts(now)).limit(1)) is not None


def presented_token(session: Session, presented: str, *, now: dt.datetime) -> ApiToken | None:
    """Return the presented token, if it is valid."""
    if not is_token(presented):
        return None
    query = select(ApiToken).where(ApiToken.secret_hash == token_hash(presented), _counts(now))
    return session.scalar(query)


def token_of_session(session: Session, token_id: int, *, now: dt.datetime) -> ApiToken | None:
    """Return the token with which a browser was signed in, if it is still valid."""
    return session.scalar(select(ApiToken).where(ApiToken.id == token_id, _counts(now)))


def is_use_due(token: ApiToken, *, now: dt.datetime) -> bool:
    """Tell whether the last recorded use is old enough to record this one."""
    return token.last_used_at is None or now - token.last_used_at >= _NOTED_EVERY


def note_use(session: Session, token_id: int, *, now: dt.datetime) -> None:
    """Record the use of a token, unless a use was recorded less than a minute ago."""
    is_due = or_(ApiToken.last_used_at.is_(None), ApiToken.last_used_at <= now - _NOTED_EVERY)
    due = update(ApiToken).where(ApiToken.id == token_id, is_due)
    session.execute(due.values(last_used_at=now))


def _counts(now: dt.datetime) -> ColumnElement[bool]:
    has_time = or_(ApiToken.expires_at.is_(None), ApiToken.expires_at > now)
    return and_(ApiToken.revoked_at.is_(None), has_time)


def _find(session: Session, which: str) -> ApiToken:
    if is_token(which):
        query = select(ApiToken).where(ApiToken.secret_hash == token_hash(which))
    else:
        query = select(ApiToken).where(ApiToken.name == which)
    token = session.scalar(query.with_for_update())
    if token is None:
        # A token is not repeated, least of all by the message that may end up in a log.
        shown = "this one" if which.startswith(PREFIX) else repr(which[:80])
        raise NotFound(f"token {shown} does not exist; `farm token list` lists them")
    return token
