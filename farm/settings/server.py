"""The server's settings, read once at the entry point into one frozen value."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farm.broker.plaintext import Plaintext
from farm.broker.url import check_broker_url
from farm.errors import InvalidSpec
from farm.gang.retries import RetryPolicy
from farm.measuring.noise import NoisePolicy
from farm.notifications.addresses import AllowedNetworks, check_address, parse_allowed
from farm.settings.database_url import check_database_url
from farm.settings.declaration import (
    folder,
    read_file,
    read_settings,
    seconds,
    setting,
    settings_of,
    whole_number,
)
from farm.settings.shared import (
    broker_url_setting,
    data_dir_setting,
    lease_setting,
    log_format_setting,
    log_level_setting,
    plaintext_setting,
)
from farm.trackers import find_tracker


def _noise_policy(text: str) -> NoisePolicy:
    try:
        return NoisePolicy(text.lower())
    except ValueError:
        raise ValueError(f"one of {', '.join(NoisePolicy)}") from None


def _addresses(text: str) -> str:
    try:
        return " ".join(dict.fromkeys(check_address(one).geturl() for one in text.split()))
    except InvalidSpec as error:
        # The whole text has the secrets of all of them.
        raise InvalidSpec("FARM_NOTIFY_URLS", error.value, error.expected) from None


def _tracker(text: str) -> str:
    try:
        tracker, destination = find_tracker(text)
    except ValueError as error:
        # The address may have a password in it.
        shown = re.split(r"[\s:]", text.strip())[0]
        raise InvalidSpec("FARM_TRACKER", shown, str(error)) from None
    return f"{tracker.name} {destination}"


def _home(text: str) -> Path:
    # The store's URL is built from it, and these end a URL's path.
    if set("?#") & set(text):
        raise ValueError("a folder without '?' and '#' in its name")
    return folder(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the server and of commands, in the order of docs/settings.md."""

    database_url: str = setting(
        "FARM_DATABASE_URL",
        absent=str,  # "" until `load_settings` knows the home
        meaning="SQLAlchemy URL of the store, such as "
        "`postgresql+psycopg://USER:PASSWORD@HOST:5432/benchfarm`. Without it, the SQLite file "
        "`farm.db` in `FARM_HOME`. Percent-encode special characters of a password. Beyond this "
        "machine it needs [`?sslmode=verify-full&sslrootcert=FILE`](security.md#tls).",
        parse=str,
        secret=True,
    )
    broker_url: str = broker_url_setting(
        "URL of the Redis that carries commands and reports. Beyond this machine it needs "
        "[`rediss://HOST:PORT/0?ssl_ca_certs=FILE`](security.md#tls). Commands find the Redis of "
        "a `farm up` or `farm demo` in `FARM_HOME` by themselves.",
    )
    broker_admin_url: str | None = setting(
        "FARM_BROKER_ADMIN_URL",
        meaning="The broker's URL with an account that may manage accounts. Only `farm agent` "
        "reads it, to give every agent [its own account](security.md#accounts-at-the-broker).",
        parse=str,
        secret=True,
    )
    signing_key_file: Path | None = setting(
        "FARM_SIGNING_KEY_FILE",
        meaning="File of the key from which the agents' keys are derived; `farm agent add` "
        "creates it. Scheduler and collector need it if the broker is not on loopback: messages "
        "are [signed](security.md#the-wire) then. Only its owner and group may have access.",
        parse=Path,
    )
    plaintext: Plaintext = plaintext_setting(
        "What may go [without TLS](security.md#tls) beyond this machine because the "
        "network is private: any of `broker,database,web`.",
    )
    api_token: str | None = setting(
        "FARM_API_TOKEN",
        meaning="One more token with the scope `admin`. Without any token the web server serves "
        "only this machine, and everybody there may do everything. See "
        "[access](operations.md#access).",
        # A blank in an environment file must not become the password of a whole farm.
        parse=lambda text: text.strip() or None,
        secret=True,
    )
    home: Path = setting(
        "FARM_HOME",
        default="~/.local/share/benchfarm",
        meaning="Where `farm demo` and `farm up` keep their store, logs and the embedded Redis.",
        parse=_home,
    )
    data_dir: str | None = data_dir_setting(
        "Where trainers look for data sets first, before Keras's cache, and put downloads."
    )
    prices: Path | None = setting(
        "FARM_PRICES",
        meaning="CSV file with prices of VMs for `farm recommend`, `farm submit --dry-run` and "
        "the web server, instead of the shipped table. See [What it "
        "costs](guide.md#what-it-costs).",
        parse=Path,
    )
    web_host: str = setting(
        "FARM_WEB_HOST",
        default="127.0.0.1",
        meaning="Address on which the web server listens.",
        parse=str,
    )
    web_port: int = setting(
        "FARM_WEB_PORT",
        default="8080",
        meaning="Its port. If it is taken, `farm demo` and `farm up` use the next free one.",
        parse=whole_number(1, 65535),
    )
    web_certificate_file: Path | None = setting(
        "FARM_WEB_CERTIFICATE_FILE",
        meaning="The web server's certificate chain; with it the server speaks TLS. Beyond "
        "loopback it needs this, a proxy or `FARM_PLAINTEXT`.",
        parse=Path,
    )
    web_key_file: Path | None = setting(
        "FARM_WEB_KEY_FILE",
        meaning="The key of that certificate. Only its owner and group may have access.",
        parse=Path,
    )
    open_reading: int = setting(
        "FARM_OPEN_READING",
        default="0",
        meaning="`1`: reading needs no token; changes do.",
        parse=whole_number(0, 1),
    )
    proxy_count: int = setting(
        "FARM_PROXY_COUNT",
        default="0",
        meaning="Number of proxies before the web server that set `X-Forwarded-For` and "
        "`X-Forwarded-Proto`. Above `0` a token is required. See [behind a "
        "proxy](operations.md#behind-a-proxy).",
        parse=whole_number(0, 10),
    )
    lease_s: float = lease_setting(
        "An agent without a fresh heartbeat for this long loses its rank. Set it the same on every "
        "agent."
    )
    reserve_after_s: float = setting(
        "FARM_RESERVE_AFTER_S",
        default="60",
        meaning="Idle agents are held for a job that has waited this long, so that narrower jobs "
        "cannot starve it; [later](operations.md#order) if it is known when agents will be free.",
        parse=seconds(0, 86400),
    )
    max_attempts: int = setting(
        "FARM_MAX_ATTEMPTS",
        default="3",
        meaning="Attempts of a job whose machines fail, before the job fails.",
        parse=whole_number(1, 100),
    )
    retry_wait_s: float = setting(
        "FARM_RETRY_WAIT_S",
        default="2",
        meaning="Pause before the second attempt. It doubles with each further one, up to five "
        "minutes.",
        parse=seconds(0, 3600),
    )
    prepare_timeout_s: float = setting(
        "FARM_PREPARE_TIMEOUT_S",
        default="120",
        meaning="Limit until every rank's trainer is imported and has its data.",
        parse=seconds(1, 3600),
    )
    start_timeout_s: float = setting(
        "FARM_START_TIMEOUT_S",
        default="120",
        meaning="Limit from *go* until every rank has finished its first step.",
        parse=seconds(1, 3600),
    )
    noise_policy: NoisePolicy | None = setting(
        "FARM_NOISE_POLICY",
        meaning="`void`: a badly disturbed attempt is void, and its job is tried again. `flag`: "
        "its measurement is kept, with the reasons. The default is `void`, and `flag` for `farm "
        "demo` and `farm up`. See [Noise](measuring.md#noise).",
        parse=_noise_policy,
    )
    notify_urls: str = setting(
        "FARM_NOTIFY_URLS",
        absent=str,
        meaning="Addresses, with spaces between them, that get every [message](notifications.md) "
        "of the farm.",
        parse=_addresses,
        secret=True,
    )
    notify_allow: AllowedNetworks = setting(
        "FARM_NOTIFY_ALLOW",
        absent=AllowedNetworks,
        meaning="Networks such as `10.0.0.0/8` and names of hosts within the farm's own network, "
        "with commas between them, that [messages](notifications.md) may go to. Without it they go "
        "to public addresses only.",
        parse=parse_allowed,
    )
    tracker: str | None = setting(
        "FARM_TRACKER",
        meaning="[Experiment tracker](trackers.md) that each job is sent to as soon as it was "
        "measured, such as `mlflow http://127.0.0.1:5000` or `tensorboard FOLDER`.",
        parse=_tracker,
        secret=True,
    )
    log_level: str = log_level_setting()
    log_format: str = log_format_setting()

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
    settings = read_settings(Settings, environ, file=read_file(file) if file else {})
    if not settings.database_url:
        url = f"sqlite:///{settings.home}/farm.db"
        settings = dataclasses.replace(settings, database_url=url)
    _check_urls(settings, environ)
    return settings


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the variables from which `load_settings` reads the same settings."""
    values = {one.name: getattr(settings, field) for field, one in settings_of(settings).items()}
    return {name: str(value) for name, value in values.items() if value is not None}


def _check_urls(settings: Settings, environ: Mapping[str, str]) -> None:
    allowed = settings.plaintext
    check_broker_url(settings.broker_url, may_be_plain=allowed.broker)
    if settings.broker_admin_url is not None:
        name = "FARM_BROKER_ADMIN_URL"
        check_broker_url(settings.broker_admin_url, name=name, may_be_plain=allowed.broker)
    check_database_url(settings.database_url, environ=environ, may_be_plain=allowed.database)
