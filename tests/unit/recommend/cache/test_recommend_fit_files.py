import dataclasses
import enum
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from farm.configuration.spec import TrainingPass
from farm.recommend import cache, calibrated, features, predictors
from farm.recommend.cache import fit_files
from farm.recommend.cache.fit_files import MAX_FILES, FitFiles, NotWritable, digest_of, pack, unpack
from farm.recommend.calibrated.step_time_model import fit_step_time_model
from farm.recommend.configuration import Configuration, Observation
from tests.fakes.step_times import FakeStepTimes
from tests.unit.recommend.cache.test_recommend_fits import observations

DIGEST = "0" * 64


@pytest.fixture(autouse=True)
def _also_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_files, "PACKAGES", (*fit_files.PACKAGES, "tests."))


class Colour(enum.Enum):
    RED = "red"


class Plain:
    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    inner: Any = None


def again(value: object) -> Any:
    packed, arrays = pack(value)
    return unpack(json.loads(json.dumps(packed)), arrays)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        float("inf"),
        "text",
        [1, [2]],
        (1, ("a", None)),
        {("a", 1): {2}, None: frozenset({3})},
        Colour.RED,
        Slotted("x", inner=Slotted("y")),
        Slotted,
        Configuration(world_size=2, global_batch_size=8, training_pass=TrainingPass.FORWARD),
    ],
)
def test_what_a_model_may_hold_comes_back_as_it_was(value: object) -> None:
    found = again(value)
    assert found == value
    assert type(found) is type(value)


def test_arrays_and_their_numbers_come_back() -> None:
    value = Plain(matrix=np.eye(3), names=np.array(["a", "bc"]), number=np.float64(0.1))
    found = again(value)
    assert (found.matrix == np.eye(3)).all()
    assert list(found.names) == ["a", "bc"]
    assert (found.number, type(found.number)) == (0.1, np.float64)


def test_what_is_shared_stays_shared_even_in_a_circle() -> None:
    array, inner = np.arange(3), Plain()
    inner.__dict__["outer"] = inner
    first, second, one, other = again((array, array, inner, inner))
    assert first is second
    assert one is other
    assert one.outer is one


@pytest.mark.parametrize("value", [lambda: 0, Path("x"), np.array([object()]), object()])
def test_what_is_of_another_class_is_not_written(value: object) -> None:
    with pytest.raises(NotWritable):
        pack(Slotted("x", inner=value))


@pytest.mark.parametrize(
    "packed",
    [
        {"object": "os:system", "values": []},
        {"object": "farm.recommend.cache.fit_files:Path", "values": []},
        {"object": "farm.recommend.cache.fit_files:os.system", "values": []},
        {"class": "subprocess:Popen"},
        {"enum": "farm.recommend.cache.fit_files:digest_of", "value": "x"},
        {"array": 7},
        {"again": 0},
        {"call": "farm.recommend.cache.fit_files:digest_of"},
    ],
)
def test_a_file_cannot_name_what_is_not_of_this_program(packed: object) -> None:
    with pytest.raises(ValueError, match="no"):
        unpack(packed, [])


def test_the_default_model_can_be_kept(tmp_path: Path) -> None:
    model = fit_step_time_model(observations(12))
    files = FitFiles(tmp_path)
    assert files.save(DIGEST, model)
    read = files.load(DIGEST)
    assert read is not None
    requested = [Configuration(world_size=1, global_batch_size=40 * n) for n in range(1, 9)]
    assert read.predict(requested) == model.predict(requested)
    assert read.predictor_name == model.predictor_name


def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    FitFiles(tmp_path / "fits").save(DIGEST, FakeStepTimes())
    [file] = (tmp_path / "fits").iterdir()
    assert (tmp_path / "fits").stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 nor is this"])
def test_a_broken_file_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{DIGEST}.npz").write_bytes(content)
    assert FitFiles(tmp_path).load(DIGEST) is None


@pytest.mark.parametrize("offset", [8, 10])  # how it is encrypted, and compressed
@pytest.mark.parametrize("bit", range(8))
def test_a_file_with_a_wrong_bit_is_no_error(tmp_path: Path, offset: int, bit: int) -> None:
    files = FitFiles(tmp_path)
    assert files.save(DIGEST, FakeStepTimes())
    file = tmp_path / f"{DIGEST}.npz"
    content = bytearray(file.read_bytes())
    content[content.rindex(b"PK\x01\x02") + offset] ^= 1 << bit
    file.write_bytes(content)
    assert isinstance(files.load(DIGEST), FakeStepTimes | None)


def test_without_a_place_to_write_nothing_is_kept() -> None:
    files = FitFiles(Path("/dev/null/fits"))
    assert not files.save(DIGEST, FakeStepTimes())
    assert files.load(DIGEST) is None


def test_the_folder_does_not_grow_for_ever(tmp_path: Path) -> None:
    files = FitFiles(tmp_path)
    for number in range(MAX_FILES + 3):
        assert files.save(f"{number:064}", FakeStepTimes())
    assert len(list(tmp_path.iterdir())) == MAX_FILES


def test_a_model_follows_from_times_weights_and_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Observation(
        measurement_id=1,
        configuration=Configuration(world_size=1, global_batch_size=8),
        step_time_s=0.1,
    )
    lighter = dataclasses.replace(one, weight=0.5)
    slower = dataclasses.replace(one, step_time_s=0.2)
    digests = {digest_of([o]) for o in (one, lighter, slower)}
    assert len(digests) == 3
    monkeypatch.setattr(fit_files, "program_digest", lambda: "another")
    assert digest_of([one]) not in digests


@pytest.mark.parametrize("module", [predictors, calibrated, features, cache])
def test_a_model_follows_from_all_of_the_recommender(module: ModuleType) -> None:
    assert module.__file__ is not None
    assert Path(module.__file__) in fit_files.program_files()
