"""What commands read of the migrations without loading them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic.script import ScriptDirectory

from farm.store import schema


def test_file_names_tell_the_revisions_in_order() -> None:
    scripts = ScriptDirectory.from_config(schema.alembic_config())
    assert schema.revisions() == [step.revision for step in scripts.walk_revisions()][::-1]
    assert schema.revisions()[-1] == scripts.get_current_head()


def test_no_revision_is_taken_for_one_from_before_the_first_release() -> None:
    """Alembic takes a beginning of a revision for the revision."""
    for revision in schema.revisions():
        assert not revision.startswith(schema.FORMER_REVISIONS)


def test_to_look_at_the_schema_loads_no_alembic(tmp_path: Path) -> None:
    file = tmp_path / "farm.db"
    code = (
        "import sys; from farm.store.engine import make_engine; from farm.store import schema\n"
        "from farm.errors import Unreachable\n"
        f"try: schema.check_schema(make_engine('sqlite:///{file}'))\n"
        "except Unreachable: pass\n"
        "assert 'alembic' not in sys.modules, 'alembic was loaded'"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
