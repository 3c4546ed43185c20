"""The code of `docs/client.md`, run as it stands at a farm of processes.

Modules that `pip install benchfarm` does not bring are kept from it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from farm.store.engine import writing
from tests.e2e.documents.documents import DOCS, SWEEP
from tests.e2e.documents.measured_sweep import add_measured_sweep
from tests.e2e.live_farm import live_farm
from tests.e2e.web_process import web_process

_OF_EXTRAS = ("celery", "flask", "click", "redis", "psutil", "sqlalchemy", "tensorflow", "torch")
_WITHOUT = f"import sys\nsys.modules.update(dict.fromkeys({_OF_EXTRAS!r}))\n"
_SEEN = """
assert list(frame["status"]) == ["ok", "ok"], frame
assert set(frame["global_batch_size"]) == {64, 256}
assert len(every_second) >= len(thinned) > 0
assert answer.options().shape[0] == len(answer["options"]) > 0
"""


@pytest.mark.timeout(600)
def test_the_code_of_the_document_reaches_frames_without_the_extras(tmp_path: Path) -> None:
    code = re.findall(r"^```python\n(.*?)^```", (DOCS / "client.md").read_text(), re.M | re.S)
    assert len(code) == 2
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with live_farm(tmp_path, agent_count=1) as farm:
        with writing(farm.engine) as session:
            add_measured_sweep(session)
        served = web_process(farm.database_url, home=tmp_path, broker_url=farm.redis.url)
        with served as address:
            done = subprocess.run(
                [sys.executable, "-c", _WITHOUT + "\n".join(code) + _SEEN],
                cwd=tmp_path,
                env={**os.environ, "BENCHFARM_URL": address},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 jobs" in done.stderr
    assert "succeeded 64" in done.stdout
