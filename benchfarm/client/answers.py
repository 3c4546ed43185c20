"""The farm's JSON answers as mappings, which notebooks show as tables."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchfarm.client.figures import new_axes
from benchfarm.client.frames import Library, frame_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_OPTIONS = 15  # in a notebook and in a figure
# What of an option a notebook shows; of the rest see `FarmAdvice.options()`.
_SHOWN = ("strategy", "world_size", "instance_type", "fingerprint", "time_s", "cost_usd", "basis")
_SURE, _UNSURE = "#1f6feb", "#9aa4b2"


class FarmAnswer(Mapping[str, Any]):
    """The JSON of an answer, as the farm's API describes it."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self._found)!r})"

    def _repr_html_(self) -> str:
        rows = [(name, value) for name, value in self.items() if not isinstance(value, dict | list)]
        return _table(("", ""), rows)


class FarmAdvice(FarmAnswer):
    """Which configuration to train on; see "Which configuration to train on" in the guide."""

    @property
    def headline(self) -> str:
        """The answer in one sentence, as sure as its evidence."""
        return str(self["headline"])

    def options(self, *, library: Library = "pandas") -> Any:
        """Return a frame of all candidates: the recommended one first, excluded ones last."""
        return frame_of(self["options"], library)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the step time of each option with its 90 % interval; measured ones are blue.

        Raises:
            ClientError: matplotlib is not installed.
        """
        axes = new_axes() if axes is None else axes
        timed = [o for o in self["options"] if o["step_time_s"] is not None][:_MOST_OPTIONS]
        for place, option in enumerate(timed):
            middle, low, high = (
                option[name] for name in ("step_time_s", "step_low_s", "step_high_s")
            )
            known = low is not None and high is not None
            axes.barh(
                place,
                middle,
                color=_SURE if option["basis"] == "measured" else _UNSURE,
                xerr=[[max(0.0, middle - low)], [max(0.0, high - middle)]] if known else None,
                capsize=3,
            )
        axes.set_yticks(range(len(timed)), [_name(option) for option in timed])
        axes.invert_yaxis()
        axes.set_xlabel("Step time (s), 90 % interval")
        axes.set_title(f"Recommended: {self.headline}", wrap=True)
        return axes

    def _repr_html_(self) -> str:
        options: Sequence[Mapping[str, Any]] = self["options"]
        shown = [name for name in _SHOWN if any(o.get(name) is not None for o in options)]
        rows = [[_cell(option.get(name)) for name in shown] for option in options[:_MOST_OPTIONS]]
        notes = self["warnings"]  # the headline has the cautions
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        return (
            f"<p><b>Recommended: {html.escape(self.headline)}</b></p>"
            f"{f'<ul>{listed}</ul>' if notes else ''}{_table(shown, rows)}"
        )


def _name(option: Mapping[str, Any]) -> str:
    return f"{option['strategy'] or 'script'}, {option['world_size']} ranks"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def row(cells: Sequence[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    head = row(header, "th") if any(header) else ""
    return f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
