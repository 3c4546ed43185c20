"""Writes a study's page, its figures and its data into the documents' folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from farm.errors import FarmError, InvalidSpec
from farm.processes.whole_file import write_whole
from farm.studies.contracts import Page, Study

# Where things lie, below the folder of the documents.
IMAGES, DATA = "images", "studies"


def own_sweep(study: Study) -> Traversable:
    """Return the study's sweep file, which comes with the program."""
    return files(f"farm.studies.{study.name}").joinpath("sweep.toml")


def sweep_path(study: Study, documents: Path) -> Path:
    """Return where the sweep goes that was measured."""
    return documents / DATA / f"{study.name}.toml"


def data_path(study: Study, documents: Path) -> Path:
    """Return where the measurements lie that the page is made from."""
    return documents / DATA / f"{study.name}.csv"


def page_path(study: Study, documents: Path) -> Path:
    """Return where the page goes."""
    return documents / study.page_file


def read_data(path: Path) -> str:
    """Read a data file.

    Raises:
        InvalidSpec: it cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec("measurements", str(path), f"a readable file ({error})") from None


def publish_data(study: Study, documents: Path, *, data: str, sweep: str) -> None:
    """Write the measurements, and the sweep file that made them, so that the folder is complete.

    Raises:
        FarmError: a file cannot be written.
    """
    with _writing(documents / DATA):
        write_whole(data_path(study, documents), data.encode())
        write_whole(sweep_path(study, documents), sweep.encode())


def publish_page(study: Study, documents: Path, *, page: Page) -> list[Path]:
    """Write the page, and each figure as PNG and SVG; return the paths, the page's first.

    Raises:
        FarmError: a file cannot be written, or matplotlib is absent.
    """
    from farm.charts.files.look import save

    path = page_path(study, documents)
    written = [path]
    # The page last: it shall not speak of figures that are not there.
    with _writing(documents / IMAGES) as folder:
        for drawing in page.drawings:
            written += save(drawing.draw(), folder, drawing.name)
        write_whole(path, page.text.encode())
    return written


@contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except OSError as error:
        raise FarmError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from error
