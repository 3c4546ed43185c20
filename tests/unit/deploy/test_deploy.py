"""What the deployment files name must exist: commands, settings, services, build targets."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from farm.settings.declaration import settings_of
from farm.settings.server import Settings, load_settings
from tests.commands.command_line import accepts
from worker_agent.settings import AgentSettings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = ROOT / "docker-compose.yml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICES = [unit for unit in UNITS if unit.stem != "farm-prune"]
DOCKERFILE = DEPLOY / "Dockerfile"
CONTAINERS = DEPLOY / "containers"
INSTALLED = "/opt/benchfarm/bin/"

SERVER_NAMES = {setting.name for setting in settings_of(Settings).values()}
AGENT_NAMES = {setting.name for setting in settings_of(AgentSettings).values()}
needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
ENV_EXAMPLES: dict[str, type] = {
    "server.env.example": Settings,
    "agent.env.example": AgentSettings,
}


def unit_values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), flags=re.MULTILINE)


def assignments(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(cast(tuple[str, str], tuple(line.split("=", 1))) for line in lines)


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def own_services() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services().items() if "build" in service}


def image_of(service: dict[str, Any]) -> str:
    return str(service["build"]["target"])


def script_of(service: dict[str, Any]) -> str | None:
    """Return the script of `CONTAINERS` that the service starts with, if it starts with one."""
    words: list[str] = service.get("entrypoint", [])
    return words[0] if words else None


# --- systemd ----------------------------------------------------------------------------------


def test_every_process_of_the_farm_has_a_unit() -> None:
    assert [unit.stem for unit in UNITS] == [
        "farm-agent",
        "farm-collector",
        "farm-prune",
        "farm-scheduler",
        "farm-web",
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    (line,) = unit_values(unit, "ExecStart")
    program, *arguments = shlex.split(line)

    assert program.startswith(INSTALLED)
    assert accepts([program.removeprefix(INSTALLED), *arguments])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_reads_an_environment_file_that_has_an_example(unit: Path) -> None:
    (path,) = unit_values(unit, "EnvironmentFile")

    assert f"{Path(path).name}.example" in ENV_EXAMPLES


def test_the_timer_starts_a_unit_that_ends_by_itself() -> None:
    [timer] = (DEPLOY / "systemd").glob("*.timer")
    service = timer.with_suffix(".service")

    assert service in UNITS
    assert unit_values(service, "Type") == ["oneshot"]
    assert unit_values(timer, "OnCalendar")


def test_the_agents_unit_survives_a_trainer_that_ran_out_of_memory() -> None:
    assert unit_values(DEPLOY / "systemd" / "farm-agent.service", "OOMPolicy") == ["continue"]


def test_the_agents_unit_leaves_no_shaped_network() -> None:
    unit = DEPLOY / "systemd" / "farm-agent.service"
    (line,) = unit_values(unit, "ExecStopPost")
    program, *arguments = shlex.split(line)

    assert arguments == ["--clear-network"]
    assert accepts([program.removeprefix(INSTALLED), *arguments])


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_a_service_says_when_it_is_up_and_is_started_again_when_it_hangs(unit: Path) -> None:
    assert unit_values(unit, "Type") == ["notify"]
    assert 30 <= int(*unit_values(unit, "WatchdogSec")) <= 120
    assert unit_values(unit, "Restart") == ["on-failure"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_writes_nothing_that_other_users_can_read(unit: Path) -> None:
    assert unit_values(unit, "UMask") == ["0077"]
    assert {mode[-1] for mode in unit_values(unit, "StateDirectoryMode")} == {"0"}


def test_the_servers_units_are_all_held_in_the_same_way() -> None:
    def sandbox(unit: Path) -> list[str]:
        text = unit.read_text().partition("[Install]")[0].partition("\nNoNewPrivileges=")[2]
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    server, *others = (sandbox(unit) for unit in UNITS if unit.stem != "farm-agent")
    assert server
    assert all(other == server for other in others)


@needs_systemd_analyze
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_leaves_an_attacker_little(unit: Path) -> None:
    """Of 10, which is a service that is held in nothing."""
    analyzed = subprocess.run(
        [
            *("systemd-analyze", "security", "--offline=true", "--no-pager"),
            *("--threshold", "40" if unit.stem == "farm-agent" else "25", str(unit)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "Overall exposure level" in analyzed.stdout, analyzed.stderr
    assert analyzed.returncode == 0, analyzed.stdout[-200:]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_no_fault_in_the_scripts() -> None:
    scripts = [DEPLOY / "install.sh", *CONTAINERS.iterdir()]
    scripts += (ROOT / "tests" / "compose" / "stand_ins").glob("*.sh")
    checked = subprocess.run(
        ["shellcheck", *map(str, scripts)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_installer_names_no_password_on_a_command_line() -> None:
    """Whoever is on the machine sees those: with one of these two he has the farm's broker."""
    script = (DEPLOY / "install.sh").read_text()
    function = re.search(r"^accounts_with\(\) \{\n.*?^\}\n", script, re.MULTILINE | re.DOTALL)
    assert function is not None

    written = subprocess.run(
        ["/bin/bash", "-c", f"{function[0]}accounts_with 'one&1' 'two/2'"],
        env={"PATH": "/nonexistent", "HERE": str(DEPLOY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = (DEPLOY / "redis" / "users.acl.example").read_text()
    expected = expected.replace("CHANGE-ME-SERVER", "one&1").replace("CHANGE-ME-ADMIN", "two/2")
    assert written.stdout == expected
    uses = [line.strip() for line in script.splitlines() if re.search(r"\$(server|admin)\b", line)]
    assert uses
    assert all(
        re.match(r"set_value|make_accounts|accounts_with|line=|printf", use) for use in uses
    ), uses


@needs_systemd_analyze
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    # The programs are not installed where the unit expects them.
    copy.write_text(unit.read_text().replace(INSTALLED, f"{sys.executable} "))

    verified = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    # Of an unknown key it only warns.
    assert (verified.returncode, verified.stderr) == (0, "")


# --- environment files ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENV_EXAMPLES)
def test_an_environment_example_sets_only_settings_and_values_that_fit(name: str) -> None:
    table = {setting.name: setting for setting in settings_of(ENV_EXAMPLES[name]).values()}
    for variable, text in assignments(DEPLOY / "env" / name).items():
        assert variable in table
        if text:
            table[variable].parse(text)


def test_the_server_example_is_a_configuration_that_loads() -> None:
    load_settings(assignments(DEPLOY / "env" / "server.env.example"))


def test_the_agents_example_has_no_access_to_the_store() -> None:
    assert "FARM_DATABASE_URL" not in assignments(DEPLOY / "env" / "agent.env.example")


# --- compose ----------------------------------------------------------------------------------


def test_the_compose_file_obeys_the_compose_specification() -> None:
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec", str(COMPOSE)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_service_waits_only_for_services_that_can_reach_what_it_waits_for() -> None:
    images_with_healthcheck = set(re.findall(r"^FROM base AS (\w+)$", DOCKERFILE.read_text(), re.M))
    for name, service in services().items():
        for target, rule in service.get("depends_on", {}).items():
            awaited = services()[target]
            if rule["condition"] == "service_healthy":
                has_own = "test" in awaited.get("healthcheck", {})
                inherits = (
                    "build" in awaited
                    and "healthcheck" not in awaited
                    and image_of(awaited) in images_with_healthcheck
                )
                assert has_own or inherits, f"{name} waits for the health of {target}"
            if rule["condition"] == "service_completed_successfully":
                # A service that is always restarted never completes.
                assert awaited["restart"].startswith("on-failure")


def test_every_service_of_ours_runs_a_command_that_exists() -> None:
    program = {"server": "farm", "agent": "farm-agent"}
    for service in own_services().values():
        script = script_of(service)
        if script is None:
            assert accepts([program[image_of(service)], *service["command"]])
        else:
            assert f"COPY deploy/containers/{script} /usr/local/bin/" in stages()[image_of(service)]
            assert os.access(CONTAINERS / script, os.X_OK)
    assert accepts(services()["agent"]["command"])


def test_every_service_of_ours_is_given_only_settings_it_has() -> None:
    names = {"server": SERVER_NAMES, "agent": AGENT_NAMES}
    for service in own_services().values():
        script = script_of(service)
        text = (CONTAINERS / script).read_text() if script else ""
        known = names[image_of(service)] | set(re.findall(r"\$\{(\w+)", text))
        assert set(service["environment"]) <= known


def test_a_service_of_ours_has_no_privilege_and_writes_to_its_volume_alone() -> None:
    for service in own_services().values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"]


def test_compose_reads_no_variable_that_its_example_does_not_explain() -> None:
    used = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))

    assert used == set(assignments(DEPLOY / "env" / "compose.env.example"))


def test_no_secret_has_a_default() -> None:
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN))([^}]*)\}", COMPOSE.read_text())

    assert secrets
    assert all(rest.startswith(":?") for _, rest in secrets)


def test_no_secret_is_on_a_command_line() -> None:
    """Whoever is on the machine sees those."""
    for service in services().values():
        words = [*service.get("entrypoint", []), *service.get("command", [])]
        words += service.get("healthcheck", {}).get("test", [])
        # Of a single $ compose itself puts the value there; $$ is left to the container's shell.
        assert not re.search(r"(?<!\$)\$\{?\w*(PASSWORD|TOKEN)", " ".join(words))


def test_nothing_is_published_beyond_loopback() -> None:
    published = {name: s["ports"] for name, s in services().items() if "ports" in s}

    assert list(published) == ["web"]
    assert all(port.startswith("127.0.0.1:") for port in published["web"])


def test_redis_keeps_everything_and_evicts_nothing() -> None:
    command = services()["redis"]["command"]
    # What follows the shell, its script and that script's name.
    options = dict(zip(command[4::2], command[5::2], strict=True))

    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_every_named_volume_is_declared_and_used() -> None:
    mounted = {
        volume.split(":")[0]
        for service in services().values()
        for volume in service.get("volumes", [])
    }

    assert mounted == set(compose()["volumes"])


# --- images -----------------------------------------------------------------------------------


def stages() -> dict[str, str]:
    """Stage name to its instructions, continuation lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    parts = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0].split(" AS ")[1]: part for part in parts}


def test_compose_builds_stages_that_the_dockerfile_has() -> None:
    assert {image_of(service) for service in own_services().values()} == {"server", "agent"}
    assert {"server", "agent"} <= set(stages())


@pytest.mark.parametrize("target", ["server", "agent"])
def test_an_image_runs_as_nobody_special_and_says_whether_it_is_well(target: str) -> None:
    stage = stages()[target]

    assert re.search(r"^USER benchfarm$", stage, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", stage, re.MULTILINE)
    (entrypoint,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', stage, re.MULTILINE)
    assert accepts([entrypoint, *(["run", "web"] if entrypoint == "farm" else [])])


def test_stages_copy_only_from_stages_and_paths_that_exist() -> None:
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text()
    for stage in stages().values():
        for source in re.findall(r"^COPY --from=(\S+)", stage, re.MULTILINE):
            assert source in stages()
        for paths in re.findall(r"^COPY (?!--)(.*)$", stage, re.MULTILINE):
            for path in paths.split()[:-1]:
                assert (ROOT / path).exists()
                assert f"!{path}\n" in ignore


def test_an_image_has_what_is_pinned_and_nothing_else() -> None:
    commands = re.findall(
        r"\bpip (?:--python \S+ )?(?:install|wheel) .*", DOCKERFILE.read_text().replace("\\\n", " ")
    )
    pinned = [line for line in commands if "--no-deps" not in line]

    assert {line.split()[-1] for line in pinned} == {
        f"deploy/requirements-{name}.txt" for name in ("build", "server", "agent")
    }
    assert all("--require-hashes -r " in line for line in pinned)
    # The project itself: built without a look at the index, or from the wheel that was built.
    for line in commands:
        assert line in pinned or "--no-build-isolation" in line or "--no-index" in line


def test_the_script_installs_what_is_pinned_and_nothing_else() -> None:
    script = (DEPLOY / "install.sh").read_text()
    commands = re.findall(r'(?:"\$\{pip\[@\]\}"|/pip") (.*)', script)

    assert len(commands) >= 6
    for line in commands:
        assert " -r " in f" {line}" or "--no-deps" in line, line
        # To build the project takes packages, too.
        assert "$SOURCE" not in line or "--no-build-isolation" in line, line
