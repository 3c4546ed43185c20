"""Signs users in with a token of the farm, and out again."""

from __future__ import annotations

import logging
from http import HTTPStatus

from flask import Blueprint, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from web.access.authentication import caller, sign_in, sign_out
from web.access.authorization import own_address
from web.access.limits import note_failure
from web.access.scopes import for_everybody
from web.parameters import NextParameters, StrippedText, read_from

logger = logging.getLogger(__name__)

bp = Blueprint("login", __name__)


class LoginForm(NextParameters):
    """A token, and where to go with it."""

    token: StrippedText = ""


@bp.get("/login")
@for_everybody
def get_login() -> ResponseReturnValue:
    """Ask for a token, unless there is nothing to sign in for. Query: `next`, where to go then."""
    back = own_address(read_from(NextParameters, request.args).next)
    if caller().scope is not None:
        return redirect(back or url_for("dashboard.get_dashboard"))
    return _page(back)


@bp.post("/login")
@for_everybody
def post_login() -> ResponseReturnValue:
    """Open a signed session for a valid token."""
    form = read_from(LoginForm, request.form)
    back = own_address(form.next)
    if sign_in(form.token):
        return redirect(back or url_for("dashboard.get_dashboard"), HTTPStatus.SEE_OTHER)
    note_failure()
    logger.warning("wrong token at the sign-in", extra={"address": request.remote_addr})
    return _page(back, error="This is no token of this farm, or it is expired or revoked.")


@bp.post("/logout")
@for_everybody
def post_logout() -> ResponseReturnValue:
    """End the session."""
    sign_out()
    return redirect(url_for("dashboard.get_dashboard"), HTTPStatus.SEE_OTHER)


def _page(back: str | None, *, error: str | None = None) -> ResponseReturnValue:
    caller()  # so that the page knows who looks at it
    page = render_template("login.html", error=error, back=back)
    return page, HTTPStatus.OK if error is None else HTTPStatus.FORBIDDEN
