from __future__ import annotations

import tomllib

from farm.text.toml_text import document_text


def test_a_sweep_file_is_read_as_it_was_written() -> None:
    sweep = {
        "name": 'a "name"\n\x7f\\',
        "repeat": True,
        "none": [],
        "case": [
            {"model": ["mlp", "é"], "world_size": [1, 2], "delay ms": 0.5},
            {"network": {"jitter_ms": [0, 1.5], "a b": {"c": []}}, "steps": 10},
        ],
    }
    assert tomllib.loads(document_text({**sweep, "unset": None})) == sweep
    assert tomllib.loads(document_text({})) == {}
