"""What the agents of a farm on one machine may not know."""

from __future__ import annotations

import pytest

from farm.embedded.farm import without_secrets
from farm.settings.declaration import secret_names
from farm.settings.server import Settings


@pytest.mark.parametrize(
    "name", sorted({*secret_names(Settings), "FARM_SIGNING_KEY_FILE"} - {"FARM_BROKER_URL"})
)
def test_agents_do_not_get_the_secrets_of_the_server(name: str) -> None:
    environ = {"FARM_BROKER_URL": "redis://127.0.0.1", "FARM_LEASE_S": "20"}
    assert without_secrets({**environ, name: "secret"}) == environ
