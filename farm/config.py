"""The server's settings, read once at the entry point into one frozen value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from farm.broker_url import check_broker_url
from farm.core import plaintext
from farm.core.noise import NoisePolicy
from farm.core.plaintext import Plaintext, parse_plaintext, plaintext_in
from farm.core.retries import RetryPolicy
from farm.core.settings import Setting, one_of, read_settings, seconds, whole_number
from farm.database_url import check_database_url
from farm.errors import InvalidSpec


def _noise_policy(text: str) -> NoisePolicy:
    try:
        return NoisePolicy(text.lower())
    except ValueError:
        raise ValueError(f"one of {', '.join(NoisePolicy)}") from None


SERVER_SETTINGS = (
    Setting(
        name="FARM_DATABASE_URL",
        default=None,
        meaning="SQLAlchemy URL of the store; without it an SQLite file in FARM_HOME",
    ),
    Setting(
        name="FARM_BROKER_URL",
        default="redis://127.0.0.1:6379/0",
        meaning="URL of the Redis that carries commands and reports",
    ),
    Setting(
        name="FARM_BROKER_ADMIN_URL",
        default=None,
        meaning="the broker with an account that may manage accounts; only for `farm agent`",
    ),
    Setting(
        name="FARM_SIGNING_KEY_FILE",
        default=None,
        meaning="file of the key that messages are signed with; needed beyond loopback",
        parse=Path,
    ),
    Setting(
        name=plaintext.NAME,
        default=None,
        meaning="what may go without TLS beyond this machine, since the network there is private: "
        "any of broker,database,web",
        parse=parse_plaintext,
    ),
    Setting(
        name="FARM_API_TOKEN",
        default=None,
        meaning="a token with every scope, beside those of `farm token`",
    ),
    Setting(
        name="FARM_HOME",
        default="~/.local/share/benchfarm",
        meaning="where `farm demo` and `farm up` keep their store, logs and the embedded Redis",
    ),
    Setting(
        name="FARM_DATA_DIR",
        default=None,
        meaning="where trainers look for data sets first and put what they download",
    ),
    Setting(
        name="FARM_PRICES",
        default=None,
        meaning="CSV file with what VMs cost, instead of the table that is shipped",
    ),
    Setting(
        name="FARM_WEB_HOST", default="127.0.0.1", meaning="address on which the web server listens"
    ),
    Setting(
        name="FARM_WEB_PORT",
        default="8080",
        meaning="its port",
        parse=whole_number(1, 65535),
    ),
    Setting(
        name="FARM_WEB_CERTIFICATE_FILE",
        default=None,
        meaning="the web server's certificate, with those between it and its authority",
        parse=Path,
    ),
    Setting(
        name="FARM_WEB_KEY_FILE",
        default=None,
        meaning="the key of that certificate; only its owner and group may open it",
        parse=Path,
    ),
    Setting(
        name="FARM_OPEN_READING",
        default="0",
        meaning="1: reading needs no token, whoever reaches the web server",
        parse=whole_number(0, 1),
    ),
    Setting(
        name="FARM_PROXY_COUNT",
        default="0",
        meaning="proxies before the web server that tell it who asks, and by http or https",
        parse=whole_number(0, 10),
    ),
    Setting(
        name="FARM_LEASE_S",
        default="20",
        meaning="an agent without a fresh heartbeat for this long loses its rank",
        parse=seconds(2, 3600),
    ),
    Setting(
        name="FARM_RESERVE_AFTER_S",
        default="60",
        meaning="a job that has waited this long gets idle agents held for it",
        parse=seconds(0, 86400),
    ),
    Setting(
        name="FARM_MAX_ATTEMPTS",
        default="3",
        meaning="attempts of a job whose machines failed, before it fails itself",
        parse=whole_number(1, 100),
    ),
    Setting(
        name="FARM_RETRY_WAIT_S",
        default="2",
        meaning="pause before the second attempt; it doubles with each further one",
        parse=seconds(0, 3600),
    ),
    Setting(
        name="FARM_PREPARE_TIMEOUT_S",
        default="120",
        meaning="until every rank's trainer has been imported and has its data",
        parse=seconds(1, 3600),
    ),
    Setting(
        name="FARM_START_TIMEOUT_S",
        default="120",
        meaning="from go until every rank has finished its first step",
        parse=seconds(1, 3600),
    ),
    Setting(
        name="FARM_NOISE_POLICY",
        default=None,
        meaning="void: try a badly disturbed measurement again; flag: keep it, with the reason",
        parse=_noise_policy,
    ),
    Setting(
        name="FARM_LOG_LEVEL",
        default="INFO",
        meaning="DEBUG, INFO, WARNING or ERROR",
        parse=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
    Setting(
        name="FARM_LOG_FORMAT",
        default="text",
        meaning="text, or json: an object a line, for programs that gather logs",
        parse=one_of("TEXT", "JSON"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked values of `SERVER_SETTINGS`."""

    # None of these is shown where settings are: each is a secret, or holds a password.
    database_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    api_token: str | None = field(repr=False)
    home: Path
    data_dir: str | None
    prices: Path | None
    web_host: str
    web_port: int
    open_reading: int
    proxy_count: int
    lease_s: float
    reserve_after_s: float
    max_attempts: int
    retry_wait_s: float
    prepare_timeout_s: float
    start_timeout_s: float
    noise_policy: NoisePolicy | None  # None: void, but flag for a whole farm on one machine
    log_level: str
    log_format: str
    broker_admin_url: str | None = field(default=None, repr=False)
    signing_key_file: Path | None = None  # None: messages are not signed
    plaintext: Plaintext = field(default_factory=Plaintext)
    web_certificate_file: Path | None = None  # None: the web server speaks HTTP alone
    web_key_file: Path | None = None

    @property
    def retry_policy(self) -> RetryPolicy:
        """When a job is tried again."""
        return RetryPolicy(max_attempts=self.max_attempts, wait_s=self.retry_wait_s)


def load_settings(environ: Mapping[str, str], *, file: Path | None = None) -> Settings:
    """Read the settings from the environment and, below it, a TOML file of the same names.

    Raises:
        InvalidSpec: the file is not TOML, a value does not fit, or what it names is beyond this
            machine, without TLS, and not said to be in a private network.
    """
    values = read_settings(SERVER_SETTINGS, environ, file=read_file(file) if file else {})
    home = _home(cast(str, values["FARM_HOME"]))
    _check_urls(values, environ)
    # The table above pairs each name with its parser, which the type checker cannot follow.
    return Settings(
        database_url=cast(str | None, values["FARM_DATABASE_URL"]) or f"sqlite:///{home}/farm.db",
        broker_url=cast(str, values["FARM_BROKER_URL"]),
        # A blank in an environment file must not become the password of a whole farm.
        api_token=(cast(str | None, values["FARM_API_TOKEN"]) or "").strip() or None,
        home=home,
        broker_admin_url=cast(str | None, values["FARM_BROKER_ADMIN_URL"]),
        signing_key_file=cast(Path | None, values["FARM_SIGNING_KEY_FILE"]),
        data_dir=cast(str | None, values["FARM_DATA_DIR"]),
        prices=Path(prices) if (prices := cast(str | None, values["FARM_PRICES"])) else None,
        web_host=cast(str, values["FARM_WEB_HOST"]),
        web_port=cast(int, values["FARM_WEB_PORT"]),
        open_reading=cast(int, values["FARM_OPEN_READING"]),
        proxy_count=cast(int, values["FARM_PROXY_COUNT"]),
        lease_s=cast(float, values["FARM_LEASE_S"]),
        reserve_after_s=cast(float, values["FARM_RESERVE_AFTER_S"]),
        max_attempts=cast(int, values["FARM_MAX_ATTEMPTS"]),
        retry_wait_s=cast(float, values["FARM_RETRY_WAIT_S"]),
        prepare_timeout_s=cast(float, values["FARM_PREPARE_TIMEOUT_S"]),
        start_timeout_s=cast(float, values["FARM_START_TIMEOUT_S"]),
        noise_policy=cast(NoisePolicy | None, values["FARM_NOISE_POLICY"]),
        log_level=cast(str, values["FARM_LOG_LEVEL"]),
        log_format=cast(str, values["FARM_LOG_FORMAT"]),
        plaintext=plaintext_in(values),
        web_certificate_file=cast(Path | None, values["FARM_WEB_CERTIFICATE_FILE"]),
        web_key_file=cast(Path | None, values["FARM_WEB_KEY_FILE"]),
    )


def _check_urls(values: Mapping[str, object], environ: Mapping[str, str]) -> None:
    allowed = plaintext_in(values)
    for name in ("FARM_BROKER_URL", "FARM_BROKER_ADMIN_URL"):
        if (url := cast(str | None, values[name])) is not None:
            check_broker_url(url, name=name, may_be_plain=allowed.broker)
    if (url := cast(str | None, values["FARM_DATABASE_URL"])) is not None:
        check_database_url(url, environ=environ, may_be_plain=allowed.database)


def _home(text: str) -> Path:
    # The store's URL is built from it, and these end a URL's path.
    if set("?#") & set(text):
        raise InvalidSpec("FARM_HOME", text, "a folder without '?' and '#' in its name")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise InvalidSpec("FARM_HOME", text, f"a folder of a known user ({error})") from None


def read_file(path: Path) -> dict[str, object]:
    """Read a TOML configuration file.

    Raises:
        InvalidSpec: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidSpec(
            "configuration file", str(path), f"a readable TOML file ({error})"
        ) from None
