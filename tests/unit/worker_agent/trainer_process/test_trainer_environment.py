"""Which variables a sweep may set for its script."""

from __future__ import annotations

import pytest

from worker_agent.trainer_process.environment import may_be_set


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "NCCL_DEBUG", "TF_CPP_MIN_LOG_LEVEL", "TOKENIZERS_PARALLELISM"]
)
def test_settings_of_libraries_may_be_set(name: str) -> None:
    assert may_be_set(name)


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_NET_PLUGIN", "CUDA_INJECTION64_PATH", "OMP_TOOL_LIBRARIES", "NCCL_DEBUG_FILE"),
        *("XLA_FLAGS", "TF_XLA_FLAGS", "KERAS_HOME", "HF_MODULES_CACHE", "TORCH_HOME"),
        *("TORCH_EXTENSIONS_DIR", "HF_TOKEN", "LD_PRELOAD", "MY_MODE"),
    ],
)
def test_what_loads_code_writes_files_or_is_secret_needs_the_operators_word(name: str) -> None:
    assert not may_be_set(name)
    assert may_be_set(name, also={name})
