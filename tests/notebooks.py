"""The notebooks in `examples/notebooks`: executes them at a farm and writes their documents.

`python -m tests.notebooks` starts a farm of two agents and writes docs/notebooks, with the outputs;
a test executes them with every change, and another compares the documents' code with theirs.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jupytext
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

import benchfarm
from benchfarm.client import NotConnected
from benchmarks.figures import root
from farm.embedded.home import read_endpoints
from tests.e2e.farm_up import farm_up
from tests.e2e.live_farm import wait_until

FOLDER = root() / "examples" / "notebooks"
DOCUMENTS, IMAGES = root() / "docs" / "notebooks", root() / "docs" / "images"
AGENT_COUNT = 2
WRITTEN_BY = "Written by `python -m tests.notebooks`"
_BEGINNING = "# %% [markdown]\n"  # the scripts beside them do not begin so


def main() -> None:
    """Execute all of them and write their documents and images."""
    DOCUMENTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, notebook_farm(Path(home)) as url:
        for file in notebook_files():
            executed = execute(file, url=url, folder=Path(home) / file.stem)
            text, images = document(executed, file.stem)
            (DOCUMENTS / f"{file.stem}.md").write_text(text)
            for name, content in images.items():
                (IMAGES / name).write_bytes(content)


@contextmanager
def notebook_farm(home: Path) -> Iterator[str]:
    """Run a farm; yield its address once agents may be given work."""
    # On a busy machine the check of an emulated delay fails more often than agents are tried.
    with farm_up(home, agent_count=AGENT_COUNT, FARM_MAX_ATTEMPTS="10"):
        found = read_endpoints(home)
        assert found is not None, (home / "output.txt").read_text()
        wait_until(lambda: _agent_count(found.dashboard_url) == AGENT_COUNT, "agents are there")
        yield found.dashboard_url


def _agent_count(url: str) -> int:
    try:
        with benchfarm.connect(url) as farm:
            return len(farm.agents())
    except NotConnected:
        return 0


def notebook_files() -> list[Path]:
    """Return the notebooks, without the scripts that they measure."""
    files = sorted(FOLDER.glob("*.py"))
    return [file for file in files if file.read_text().startswith(_BEGINNING)]


def execute(file: Path, *, url: str, folder: Path) -> NotebookNode:
    """Execute a notebook at the farm of that address, in a copy of its folder: `folder`.

    The kernel is this interpreter. It listens on no port, and ends before this returns.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised something.
    """
    notebook: NotebookNode = jupytext.read(file)
    shutil.copytree(file.parent, folder)
    with tempfile.TemporaryDirectory() as own:  # a short name: it has the kernel's sockets
        kernel = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            transport="ipc",
            connection_file=f"{own}/kernel.json",
        )
        client = NotebookClient(
            notebook,
            km=kernel,
            resources={"metadata": {"path": str(folder)}},
            coalesce_streams=True,
        )
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENCHFARM_", "MPL"))}
        client.execute(
            cleanup_kc=True,
            env={**kept, "BENCHFARM_URL": url, "IPYTHONDIR": own, "XDG_CONFIG_HOME": own},
        )
    return notebook


def document(notebook: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its images by the names of their files."""
    images: dict[str, bytes] = {}
    today = dt.datetime.now(dt.UTC).date()
    parts = [
        f"<!-- {WRITTEN_BY} from examples/notebooks/{name}.py -->",
        f"*Outputs of {today}, from {AGENT_COUNT} agents that share {os.cpu_count()} cores of one "
        "machine with their farm and other programs.*",
    ]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(_markdown_table(data["text/html"]))
            elif "image/png" in data:
                image = f"notebook-{name}-{len(images) + 1}.png".replace("_", "-")
                images[image] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure of the cell above](../images/{image})")
            else:
                text = data.get("text/plain") or output.get("text", "")
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", images


def _markdown_table(table: str) -> str:
    """Return a data frame, as pandas writes it for a notebook, without its index."""
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    titles, *values = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)[1:] for row in rows]
    ruler = ["---:"] * len(titles)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ruler, *values))


if __name__ == "__main__":
    main()
