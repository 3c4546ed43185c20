"""Which GPUs are an agent's. A library built for the test stands in for NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.errors import InvalidSpec
from tests.fakes.nvml import FakeNvml, uuid_of
from worker_agent.config import AgentConfig, load_config
from worker_agent.machine.gpus import names_of, open_nvml
from worker_agent.machine.hardware import read_facts


def config_of(folder: Path, **given: str) -> AgentConfig:
    return load_config({"AGENT_STATE_DIR": str(folder), "AGENT_CLOUD": "never", **given})


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        ({}, [0, 1, 2]),
        ({"AGENT_GPUS": "2,0"}, [2, 0]),
        ({"AGENT_GPUS": "GPU-00000001"}, [1]),
        ({"AGENT_GPUS": uuid_of(2)}, [2]),
        ({"AGENT_GPUS": "none"}, []),
        ({"AGENT_GPUS": "1/1"}, [0, 1, 2]),
        ({"AGENT_GPUS": "3/3"}, [2]),
        ({"AGENT_GPUS": "2/2"}, [1]),
        ({"AGENT_GPUS": "1/4"}, []),
        ({"AGENT_GPUS": "2/2", "CUDA_VISIBLE_DEVICES": "2,0"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,GPU-00000002"}, [1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "1,7,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "1", "AGENT_GPUS": "0"}, [0]),
    ],
)
def test_an_agent_has_the_gpus_that_it_is_given_or_that_cuda_may_see(
    tmp_path: Path, fake_nvml: FakeNvml, given: dict[str, str], gpus: list[int]
) -> None:
    fake_nvml.set("gpu_count", 3)
    config = config_of(tmp_path, **given)
    assert config.gpus == tuple(uuid_of(gpu) for gpu in gpus)
    facts = read_facts(config)
    assert facts.gpus == config.gpus
    assert facts.hardware.accelerators == tuple(f"NVIDIA Stand-in {gpu}" for gpu in gpus)
    able = [name for name in facts.capabilities if name.startswith("gpus:")]
    assert able == [f"gpus:{count}" for count in range(1, len(gpus) + 1)]


@pytest.mark.parametrize("setting", ["2", "GPU-9", "GPU-0", "0,0", "0,GPU-00000000", "MIG-1"])
def test_a_gpu_that_is_not_there_or_named_twice_is_refused(
    tmp_path: Path, fake_nvml: FakeNvml, setting: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"AGENT_GPUS: .*each once: 0 \\({uuid_of(0)}\\), 1"):
        config_of(tmp_path, AGENT_GPUS=setting)


@pytest.mark.parametrize("text", ["first", "0;1", "", "0,,1", "GPU-", "0/2"])
def test_what_names_no_gpu_is_refused(tmp_path: Path, fake_nvml: FakeNvml, text: str) -> None:
    if text:
        with pytest.raises(InvalidSpec, match="AGENT_GPUS: expected numbers or UUIDs of GPUs"):
            config_of(tmp_path, AGENT_GPUS=text)
    else:
        assert config_of(tmp_path, AGENT_GPUS=text).gpus == (uuid_of(0), uuid_of(1))


def test_a_share_beyond_the_last_is_refused(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    with pytest.raises(InvalidSpec, match="AGENT_GPUS: expected a share such as 2/4"):
        config_of(tmp_path, AGENT_GPUS="3/2")


def test_a_broken_gpu_is_nobodys_and_keeps_no_agent_from_starting(
    tmp_path: Path, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set("gpu_count", 3)
    fake_nvml.set("is_lost", 1, place=1)
    config = config_of(tmp_path)
    assert config.gpus == (uuid_of(0), uuid_of(2))
    assert len(read_facts(config).hardware.accelerators) == 2


@pytest.mark.parametrize("state", [("gpu_count", 0), ("driver_code", 9), ("driver_code", 12)])
def test_without_gpus_their_driver_or_its_library_trainers_find_out_themselves(
    tmp_path: Path, fake_nvml: FakeNvml, state: tuple[str, int]
) -> None:
    fake_nvml.set(*state)
    config = config_of(tmp_path)
    assert (config.gpus, read_facts(config).hardware.accelerators) == (None, ())
    assert config_of(tmp_path, AGENT_GPUS="none").gpus == ()
    assert config_of(tmp_path, AGENT_GPUS="1/2").gpus is None
    with pytest.raises(InvalidSpec, match=r"AGENT_GPUS: .*is NVIDIA's driver loaded"):
        config_of(tmp_path, AGENT_GPUS="0")


def test_a_gpu_that_broke_has_no_name(fake_nvml: FakeNvml) -> None:
    fake_nvml.set("is_lost", 1)
    assert names_of(open_nvml(), [uuid_of(0), uuid_of(1)]) == ("NVIDIA Stand-in 1",)


def test_an_agent_with_gpus_takes_as_many_ranks_as_one_without(
    tmp_path: Path, fake_nvml: FakeNvml
) -> None:
    given = {"AGENT_CPUS": "0", "AGENT_SHARES_CORES": "true"}
    with_gpus = read_facts(config_of(tmp_path, **given)).capabilities
    without = read_facts(config_of(tmp_path, AGENT_GPUS="none", **given)).capabilities
    assert set(with_gpus) - set(without) == {"gpus:1", "gpus:2"}
    assert set(without) <= set(with_gpus)


def test_the_fingerprint_has_the_software_of_gpus_and_of_no_others(
    tmp_path: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nvidia_nccl_cu13-2.27.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: nvidia-nccl-cu13\nVersion: 2.27.3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = read_facts(config_of(tmp_path)).hardware
    of_gpus = {"driver": "550.54.15", "CUDA": "12.4", "NCCL": "2.27.3"}
    assert of_gpus.items() <= found.accelerator_software.items()
    without = read_facts(config_of(tmp_path, AGENT_GPUS="none")).hardware
    assert without.accelerator_software == {}
    assert without.fingerprint != found.fingerprint
