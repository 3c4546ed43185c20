"""`farm data`: prints the name by which sweep files refer to your own data set."""

from __future__ import annotations

from pathlib import Path

import click

from farm.cli.output import json_option, print_json
from farm.configuration.own_data import MOST_PIXELS_OF_A_SIDE, MOST_TOKENS_OF_A_SEQUENCE
from farm.errors import InvalidSpec
from farm.text.toml_text import string_text
from farm.trainers.datasets.own.own_dataset import examine


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--image-side",
    type=click.IntRange(1, MOST_PIXELS_OF_A_SIDE),
    metavar="PIXELS",
    help="Resize the images of a folder to squares of this side.",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(1, MOST_TOKENS_OF_A_SEQUENCE),
    metavar="TOKENS",
    help="Cut a stream of tokens into sequences of this length.",
)
@json_option
def data(path: Path, *, image_side: int | None, sequence_length: int | None, as_json: bool) -> None:
    """Read the data set in PATH and print its name for sweep files.

    \b
    PATH is one of
      a folder of images with a folder for each class, perhaps below train and test
      a .npz file of x_train, y_train, x_test and y_test
      a folder of inputs.npy and labels.npy
      a file of tokens: .bin, 16 bits each as nanoGPT writes it, or .npy
      a folder of such train.bin and val.bin

    Put it into FARM_DATA_DIR of every agent. An agent reads only there, and checks that the content
    is the same.
    """
    try:
        facts, sha256 = examine(
            path.absolute(), image_side=image_side, sequence_length=sequence_length
        )
    except ModuleNotFoundError as error:
        expected = f"{error.name}: pip install 'benchfarm[agent]'"
        raise InvalidSpec("data", str(path), expected) from None
    if as_json:
        print_json(
            {
                "dataset": facts.name,
                "kind": facts.kind,
                "example_shape": facts.example_shape,
                "class_count": facts.class_count,
                "train_examples_count": facts.train_examples_count,
                "test_examples_count": facts.test_examples_count,
                "sha256": sha256,
            }
        )
        return
    click.echo(f"dataset = {string_text(facts.name)}")
    # Beside standard output, so that the line can be appended to a sweep file.
    click.echo(f"put {path.name} into FARM_DATA_DIR of every agent", err=True)
