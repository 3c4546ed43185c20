import pytest

from farm.core.settings import Setting, one_of, read_settings, seconds, whole_number
from farm.errors import InvalidSpec

PORT = Setting(name="PORT", default="80", meaning="a port", parse=whole_number(1, 65535))
NAME = Setting(name="NAME", default=None, meaning="a name")
WAIT = Setting(name="WAIT_S", default="2", meaning="a wait", parse=seconds(0, 60))
ALL = (PORT, NAME, WAIT)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default() -> None:
    assert read_settings(ALL, {}, file={})["PORT"] == 80
    assert read_settings(ALL, {}, file={"PORT": 81})["PORT"] == 81
    assert read_settings(ALL, {"PORT": "82"}, file={"PORT": 81})["PORT"] == 82


def test_without_a_default_what_is_not_given_is_missing() -> None:
    assert read_settings(ALL, {}, file={})["NAME"] is None


def test_an_empty_text_counts_as_not_given() -> None:
    assert read_settings(ALL, {"PORT": "", "NAME": ""}, file={}) == read_settings(ALL, {}, file={})
    assert read_settings(ALL, {"NAME": ""}, file={"NAME": "x"})["NAME"] == "x"
    assert read_settings(ALL, {}, file={"NAME": ""})["NAME"] is None


def test_zero_in_a_file_is_a_value() -> None:
    assert read_settings(ALL, {}, file={"WAIT_S": 0})["WAIT_S"] == 0.0
    assert read_settings(ALL, {"WAIT_S": "0"}, file={})["WAIT_S"] == 0.0


def test_other_variables_of_the_environment_are_nobodys_business() -> None:
    assert "HOME" not in read_settings(ALL, {"HOME": "/root"}, file={})


def test_an_unknown_key_in_a_file_is_refused() -> None:
    with pytest.raises(
        InvalidSpec, match=r"^PROT: expected one of the settings PORT, NAME, WAIT_S"
    ):
        read_settings(ALL, {}, file={"PROT": 80})


@pytest.mark.parametrize("value", [[80], {"a": 1}, None])
def test_a_file_gives_texts_and_numbers_only(value: object) -> None:
    with pytest.raises(InvalidSpec, match=r"^PORT: expected a text or a number"):
        read_settings(ALL, {}, file={"PORT": value})


@pytest.mark.parametrize("text", ["0", "65536", "80.0", "x", "-1", "true"])
def test_a_whole_number_keeps_its_bounds(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^PORT: expected a whole number from 1 to 65535, got"):
        read_settings(ALL, {"PORT": text}, file={})


@pytest.mark.parametrize("text", ["-0.1", "60.1", "nan", "inf", "soon", "1e999"])
def test_a_duration_keeps_its_bounds(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^WAIT_S: expected a number of seconds from 0 to 60"):
        read_settings(ALL, {"WAIT_S": text}, file={})


def test_a_word_is_one_of_those_allowed_in_any_case() -> None:
    level = Setting(name="LEVEL", default="INFO", meaning="", parse=one_of("INFO", "DEBUG"))
    assert read_settings([level], {"LEVEL": "debug"}, file={})["LEVEL"] == "DEBUG"
    with pytest.raises(InvalidSpec, match=r"^LEVEL: expected one of INFO, DEBUG, got 'LOUD'"):
        read_settings([level], {"LEVEL": "LOUD"}, file={})
