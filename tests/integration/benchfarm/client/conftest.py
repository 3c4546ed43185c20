"""A client of the real web application, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
import sqlalchemy as sa

from benchfarm.client import Farm, connect
from tests.web.web_client import web_settings, without_limits
from web.app import create_app

Connect = Callable[..., Farm]


@pytest.fixture
def database_kind() -> str:
    """SQLite: the samples alone are asked of both, see `test_client_samples.py`."""
    return "sqlite"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the user's own settings from the tests."""
    for name in ("BENCHFARM_URL", "BENCHFARM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def connected(engine: sa.Engine) -> Iterator[Connect]:
    """Connects to the store's farm: token, and what stands between client and server."""
    app = create_app(web_settings(), engine=engine)
    without_limits(app.test_client())
    server = httpx.WSGITransport(app=app)
    farms: list[Farm] = []

    def make(
        token: str | None = None,
        *,
        between: Callable[[httpx.BaseTransport], httpx.BaseTransport] = lambda server: server,
        patience_s: float = 60.0,
    ) -> Farm:
        farm = connect("http://127.0.0.1", token, patience_s=patience_s, transport=between(server))
        farms.append(farm)
        return farm

    yield make
    for farm in farms:
        farm.close()
