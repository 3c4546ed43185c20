"""The environment variables that a trainer, or a helper process, receives from its agent.

A peer of the gang may learn everything that a trainer knows, since TensorFlow's servers run what
they are sent. The broker's URL contains a password. Trainers therefore receive only the variables
listed here, not all that the operator has set for the agent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

# The agent's state directory, by which leftovers are found.
AGENT_MARK = "BENCHFARM_AGENT_STATE"
# To find programs, modules, certificates and data sets, and to write text as the agent would.
PASSED = frozenset(
    (
        *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHASHSEED"),
        *("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE"),
        *("TZ", "TMPDIR", "XDG_CACHE_HOME", "FARM_DATA_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy"),
        *("https_proxy", "no_proxy"),
    )
)
# Settings of the frameworks and of the libraries under them.
PASSED_PREFIXES = (
    *("LC_", "TF_", "XLA_", "KERAS_", "TORCH_", "PYTORCH_", "CUDA_", "CUDNN_", "NVIDIA_", "NCCL_"),
    *("GLOO_", "GRPC_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "MALLOC_"),
)
# Which a sweep may set for its script: also those of the libraries above the frameworks, unless
# they name a library or a module to load, or a file or folder to write.
_SET_PREFIXES = (*PASSED_PREFIXES, "HF_", "TRANSFORMERS_", "TOKENIZERS_", "DATASETS_", "JAX_")
_FILE_PARTS = (
    *("PLUGIN", "LIBRAR", "INJECTION", "MODULE", "PATH", "FILE", "FOLDER", "DIR", "HOME", "CACHE"),
    "XLA_FLAGS",
)
# What the agent's own helper processes receive: enough to find this interpreter's modules, and to
# write the text that the agent would.
_PASSED_TO_HELPERS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TZ")
ANY_NAME = "*"
# A cluster left over in the environment would contradict the one that go brings.
_WITHHELD = frozenset({"TF_CONFIG"})
# Not even of the libraries' own: a proxy's or an experiment tracker's.
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY", "_URL", "_DSN")
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")
_OWN_PREFIXES = ("FARM_", "AGENT_", "CELERY_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_names(text: str) -> frozenset[str]:
    """Read "MY_LIBRARY_HOME,LICENSE_FILE": what trainers get beside the usual."""
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    if not all(_NAME.fullmatch(name) and not name.startswith(_OWN_PREFIXES) for name in names):
        raise ValueError(f"names of variables, none of {', '.join(_OWN_PREFIXES)}")
    return names


def may_be_set(name: str, *, also: Collection[str] = ()) -> bool:
    """Whether a sweep may give this variable to a script; `also`: what the operator has named."""
    if name in also or ANY_NAME in also:
        return True
    names_file = any(part in name.upper() for part in _FILE_PARTS)
    return name.startswith(_SET_PREFIXES) and _is_harmless(name) and not names_file


def trainer_environment(
    environ: Mapping[str, str], *, state_dir: Path, also: Collection[str] = ()
) -> dict[str, str]:
    """Choose what a trainer may know of the agent's environment, and mark it as this agent's.

    `also`: what the agent's operator has named; it passes as it is.
    """
    chosen = {
        name: value
        for name, value in environ.items()
        if name in also
        or (
            (name in PASSED or name.startswith(PASSED_PREFIXES))
            and _is_harmless(name)
            and not _WITH_PASSWORD.search(value)
        )
    }
    return {**chosen, AGENT_MARK: str(state_dir), "PYTHONUNBUFFERED": "1"}


def _is_harmless(name: str) -> bool:
    own_part = name.upper().removeprefix("TOKENIZERS_")  # a library's name, and no token
    return name not in _WITHHELD and not any(part in own_part for part in _SECRET_PARTS)


def plain_environment() -> dict[str, str]:
    """Return the environment for a helper process of the agent's own, which needs no setting."""
    return {name: os.environ[name] for name in _PASSED_TO_HELPERS if name in os.environ}
