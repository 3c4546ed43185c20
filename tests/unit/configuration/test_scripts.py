"""What a sweep says of a training script, and what becomes of its command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis
from farm.configuration.scripts import (
    bundle_of,
    examples_per_epoch,
    parameters_of,
    python_of,
    script_of,
    variables_of,
    version_of,
    words_of,
    workload_text,
)
from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.submission import plan

SHA256 = "0123456789abcdef" * 4


def jobs(**case: Any) -> tuple[JobSpec, ...]:
    chosen = {"script": "train.py", "world_size": 1, "global_batch_size": 64, **case}
    return plan({"name": "scripts", "case": [chosen]}).expansion.jobs


def models(found: Iterable[JobSpec]) -> list[str]:
    return [job.model for job in found]


def refusal(**case: Any) -> str:
    with pytest.raises(InvalidSpec) as refused:
        jobs(**case)
    return str(refused.value)


def test_a_script_is_a_model_and_its_launcher_a_strategy() -> None:
    [job] = jobs(script_sha256=SHA256, args=["--batch", "{per_rank_batch_size}", "--note", "a b"])
    assert job.model == ("script:train.py@0123456789ab --batch {per_rank_batch_size} --note 'a b'")
    assert (job.dataset, job.strategy) == ("script", "torch_script")
    assert job.required_capabilities == {"script:train.py", "torch"}
    assert script_of(job.model) == "train.py"
    filled = words_of(job.model, {"per_rank_batch_size": 32})
    assert filled == ["--batch", "32", "--note", "a b"]


def test_each_combination_of_parameters_is_a_model_of_its_own() -> None:
    found = jobs(
        args="--hidden {hidden} --lr={lr} --json '{\"a\": 1}'",
        parameters={"hidden": [256, 1024, 256], "lr": ["1e-3", 0.5]},
    )
    assert sorted(words_of(job.model, {}) for job in found) == [
        ["--hidden", hidden, f"--lr={lr}", "--json", '{"a": 1}']
        for hidden in ("1024", "256")
        for lr in ("0.5", "1e-3")
    ]
    assert {(known["hidden"], known["lr"]) for known in map(parameters_of, models(found))} == {
        ("1024", "0.5"),
        ("1024", "1e-3"),
        ("256", "0.5"),
        ("256", "1e-3"),
    }


@pytest.mark.parametrize("axis", [a for a in AXES if not a.is_of_scripts], ids=lambda a: a.name)
def test_a_script_learns_of_no_axis_of_the_farms_own_training(axis: Axis) -> None:
    assert f"case[0].{axis.name}: expected " in refusal(**{axis.name: axis.default or "x"})


def test_the_ranks_of_a_script_have_as_many_gpus_as_it_asks_for() -> None:
    found = jobs(device=["cpu", "gpu"], gpus_per_rank=[1, 2])
    assert {job.gpus_per_rank for job in found} == {0, 1, 2}
    assert len(found) == 3


def test_a_parameter_may_be_called_as_such_an_axis() -> None:
    [job] = jobs(args="--lr {learning_rate}", parameters={"learning_rate": [0.5]})
    assert words_of(job.model, {"learning_rate": "0.02"}) == ["--lr", "0.5"]


def test_people_read_the_command_with_its_parameters_filled_in() -> None:
    [job] = jobs(
        args="--hidden {hidden} --rank {rank}",
        parameters={"hidden": [256]},
        environment={"MODE": "fast"},
    )
    expected = "MODE=fast train.py --hidden 256 --rank {rank}"
    assert workload_text(job.model, job.dataset) == expected
    assert workload_text("mlp", "digits") == "mlp on digits"
    assert workload_text(None, None) == "unnamed model on an unnamed data set"


def test_the_examples_of_an_epoch_are_those_that_the_sweep_says() -> None:
    [job] = jobs(examples_per_epoch=50_000)
    assert examples_per_epoch(job.dataset) == 50_000
    [job] = jobs()
    assert examples_per_epoch(job.dataset) is None


@pytest.mark.parametrize(
    ("launcher", "capabilities"),
    [("torch", {"torch"}), ("tensorflow", {"tensorflow"}), ("none", set())],
)
def test_a_launcher_needs_its_framework(launcher: str, capabilities: set[str]) -> None:
    [job] = jobs(launcher=launcher)
    assert job.required_capabilities == {"script:train.py", *capabilities}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"args": ["{hiden}"], "parameters": {"hidden": 1}}, "did you mean 'hidden'"),
        ({"args": ["{model}"]}, "case[0].args: expected a placeholder of world_size"),
        ({"parameters": {"hidden": [1]}}, "case[0].parameters.hidden: expected {hidden} in args"),
        ({"args": ["{hidden}"], "parameters": {"hidden": []}}, "at least one value"),
        ({"args": ["{x}"], "parameters": {"x": [None]}}, "a text, a number, true or false"),
        ({"args": ["{X}"], "parameters": {"X": 1}}, "a name of small letters"),
        ({"parameters": {"rank": 1}}, "another name: this one has a meaning already"),
        ({"parameters": {"world_size": 1}}, "another name: this one has a meaning already"),
        ({"parameters": [1]}, "case[0].parameters: expected a table"),
        ({"args": "--a 'b"}, "case[0].args: expected words as in a shell"),
        ({"args": 3}, "case[0].args: expected a list of printable texts"),
        ({"args": ["a\nb"]}, "case[0].args: expected a list of printable texts"),
        ({"args": ["x" * 2000]}, "at most 1000 characters"),
        (
            {
                "args": [f"{{p{i}}}" for i in range(8)],
                "parameters": {f"p{i}": list(range(10)) for i in range(8)},
            },
            "case[0].parameters: expected at most 100000 combinations of values, got 100000000",
        ),
        ({"launcher": "mpi"}, "case[0].launcher: expected one of torch, tensorflow, none"),
        ({"script": "../train.py"}, "case[0].script: expected a file's name"),
        ({"script": 3}, "case[0].script: expected a file's name"),
        ({"environment": {"PATH": "/x"}}, "case[0].environment.PATH: expected another variable"),
        ({"environment": {"LD_PRELOAD": "x"}}, "expected another variable"),
        ({"environment": {"PYTHONPATH": "x"}}, "expected another variable"),
        ({"environment": {"FARM_X": "x"}}, "expected another variable"),
        ({"environment": {"AGENT_KEY": "x"}}, "expected another variable"),
        ({"environment": {"RANK": "1"}}, "expected another variable"),
        ({"environment": {"a b": "x"}}, "expected a name of letters, digits and '_'"),
        ({"environment": {"A": ["x"]}}, "case[0].environment.A: expected a text, a number"),
        ({"environment": {"A": "{hiden}"}}, "expected a placeholder of"),
        ({"environment": "hf"}, "case[0].environment: expected a table"),
        ({"python": "a b"}, "case[0].python: expected a name of letters"),
        ({"python": 3}, "case[0].python: expected a name of letters"),
        ({"bundle_sha256": "abc"}, "case[0].bundle_sha256: expected 64 hexadecimal digits"),
        (
            {"bundle_sha256": SHA256, "script_sha256": SHA256},
            "case[0].script_sha256: expected nothing beside bundle_sha256",
        ),
        (
            {"bundle_sha256": SHA256, "script": "../train.py"},
            "case[0].script: expected a path such",
        ),
        ({"bundle_sha256": SHA256, "script": "/train.py"}, "case[0].script: expected a path such"),
        ({"bundle_sha256": SHA256, "script": "a b.py"}, "case[0].script: expected a path such"),
        ({"bundle_sha256": SHA256, "script": "a#b.py"}, "case[0].script: expected a path such"),
        ({"script_sha256": "abc"}, "case[0].script_sha256: expected 64 hexadecimal digits"),
        ({"examples_per_epoch": 0}, "case[0].examples_per_epoch: expected a whole number from 1"),
        ({"model": "mlp"}, "case[0].model: expected nothing beside script"),
        ({"strategy": "single"}, "case[0].strategy: expected nothing beside script"),
        ({"epochs": 1}, "case[0].epochs: expected nothing beside script"),
        ({"placement": ["soft", "hard"]}, "case[0].placement: expected nothing beside script"),
        ({"batch_split": "by_speed"}, "case[0].batch_split: expected nothing beside script"),
        ({"global_batch_size": [64, 128]}, "in args, or the script never learns of it"),
        (
            {"args": "{per_rank_batch_size}", "world_size": 3},
            "case[0].global_batch_size: expected a multiple of world_size 3",
        ),
        (
            {"one_way_delay_ms": 5, "emulator": "tcp_proxy", "world_size": 2},
            "case[0].emulator: expected one that shapes every port, for strategy 'torch_script'",
        ),
    ],
)
def test_what_a_script_would_not_get_is_refused(case: dict[str, Any], message: str) -> None:
    assert message in refusal(**case)


@pytest.mark.parametrize("key", ["launcher", "args", "parameters", "examples_per_epoch"])
def test_what_belongs_to_a_script_is_refused_without_one(key: str) -> None:
    case = {"model": "mlp", "dataset": "digits", "strategy": "single", key: "x"}
    with pytest.raises(InvalidSpec, match=f"case\\[0\\].{key}: expected nothing without script"):
        plan({"name": "x", "case": [{"world_size": 1, "global_batch_size": 64, **case}]})


@pytest.mark.parametrize(
    ("model", "strategy"), [("script:train.py", "single"), ("mlp", "torch_script")]
)
def test_a_script_needs_a_launcher_and_a_model_none(model: str, strategy: str) -> None:
    case = {"model": model, "dataset": "digits", "strategy": strategy}
    with pytest.raises(InvalidSpec, match="a launcher for a script, and no other"):
        plan({"name": "x", "case": [{"world_size": 1, "global_batch_size": 64, **case}]})


def test_a_script_is_measured_by_steps_however_a_sweep_names_it() -> None:
    case: dict[str, Any] = {
        **{"model": "script:train.py", "dataset": "script", "strategy": "torch_script"},
        **{"world_size": 1, "global_batch_size": 64, "epochs": 1},
    }
    with pytest.raises(InvalidSpec, match="epochs: expected steps"):
        plan({"name": "x", "case": [case]})


def test_a_script_may_train_to_its_end_and_a_model_of_the_farms_own_may_not() -> None:
    [job] = jobs(steps="all")
    assert (job.steps, job.epochs) == (None, None)
    assert 'steps: expected a whole number from 1 to 10000000 or "all"' in refusal(steps="some")
    own = {"model": "mlp", "dataset": "digits", "strategy": "ddp", "world_size": 1}
    with pytest.raises(InvalidSpec, match="steps: expected a number: only scripts"):
        plan({"name": "x", "case": [{**own, "global_batch_size": 64, "steps": "all"}]})


@pytest.mark.parametrize(
    "model",
    [
        *("bundle:../../opt/evil.txt@0123456789ab", "bundle:/opt/x.py@0123456789ab"),
        *("bundle:@0123456789ab", "bundle:train.py", "bundle:train.py@0123456789AB"),
        *("bundle:train.py@0123456789ab 'open", "bundle:train.py@0123456789ab#../x"),
        *("bundle:train.py@0123456789ab LD_PRELOAD=x -- y", "script:a/train.py", "script:"),
        *("script:train.txt", "script:train.py@0123", "script:train.py PATH=x --"),
    ],
)
def test_a_model_that_no_sweeps_script_could_make_is_refused(model: str) -> None:
    case = {"model": model, "dataset": "script", "strategy": "plain_script"}
    sized = {**case, "world_size": 1, "global_batch_size": 64}
    with pytest.raises(InvalidSpec):
        plan({"name": "x", "case": [sized]})
    with pytest.raises(InvalidSpec):
        JobSpec(**sized, steps=1)  # type: ignore[arg-type]


def test_another_interpreter_is_another_model_that_needs_no_framework_of_the_agents() -> None:
    [own], [other] = jobs(), jobs(python="hf-3.11")
    assert other.model == own.model.replace("train.py", "train.py#hf-3.11", 1)
    assert (script_of(other.model), python_of(other.model)) == ("train.py", "hf-3.11")
    assert python_of(own.model) is None
    assert other.required_capabilities == {"script:train.py", "python:hf-3.11"}


def test_a_bundle_may_have_its_script_in_a_folder_and_needs_agents_that_run_bundles() -> None:
    [job] = jobs(script="src/train.py", bundle_sha256="ab" * 32, python="hf")
    assert job.model.startswith(f"bundle:src/train.py@{'ab' * 6}#hf")
    assert (script_of(job.model), version_of(job.model)) == ("src/train.py", "ab" * 6)
    assert (bundle_of(job.model), python_of(job.model)) == ("ab" * 6, "hf")
    assert job.required_capabilities == {"bundles", "python:hf"}


def test_variables_stand_before_the_arguments_and_are_filled_in_like_them() -> None:
    [job] = jobs(
        args=["--hidden", "{hidden}"],
        environment={"OMP_NUM_THREADS": 2, "MODE": "{hidden} of {rank}", "EMPTY": ""},
        parameters={"hidden": 9},
    )
    given = "{hidden}=9 EMPTY= 'MODE={hidden} of {rank}' OMP_NUM_THREADS=2"
    assert job.model == f"script:train.py {given} -- --hidden {{hidden}}"
    assert words_of(job.model, {"rank": 1}) == ["--hidden", "9"]
    assert variables_of(job.model, {"rank": 1}) == {
        **{"EMPTY": "", "MODE": "9 of 1", "OMP_NUM_THREADS": "2"}
    }
    assert variables_of("mlp") == {}


@given(
    st.lists(st.sampled_from(["--", "a=1", "B=", "x", "--lr=2", "{rank}", "{p}"]), max_size=6),
    st.dictionaries(st.sampled_from(["A", "B_2"]), st.sampled_from(["", "--", "a=b c"])),
    st.sampled_from(["z=1", "--", "v"]),
)
def test_arguments_and_variables_come_back_as_they_were_written(
    args: list[str], environment: dict[str, str], p: str
) -> None:
    [job] = jobs(args=[*args, "{p}"], environment=environment, parameters={"p": p})
    expected = [p if word == "{p}" else word for word in [*args, "{p}"]]
    assert words_of(job.model, {}) == expected
    assert variables_of(job.model) == environment
