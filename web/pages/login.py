"""Sign in with the farm's token, and out again."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, redirect, render_template, request, session, url_for
from flask.typing import ResponseReturnValue

from web.access import is_signed_in, sign_in

bp = Blueprint("login", __name__)


@bp.get("/login")
def get_login() -> ResponseReturnValue:
    """Ask for the token, unless there is nothing to sign in for."""
    if is_signed_in():
        return redirect(url_for("dashboard.get_dashboard"))
    return render_template("login.html", error=None)


@bp.post("/login")
def post_login() -> ResponseReturnValue:
    """Keep a signed session for whoever knows the token."""
    if sign_in(request.form.get("token", "")):
        return redirect(url_for("dashboard.get_dashboard"), HTTPStatus.SEE_OTHER)
    page = render_template("login.html", error="This is not the token of this farm.")
    return page, HTTPStatus.FORBIDDEN


@bp.post("/logout")
def post_logout() -> ResponseReturnValue:
    """Forget the session."""
    session.clear()
    return redirect(url_for("dashboard.get_dashboard"), HTTPStatus.SEE_OTHER)
