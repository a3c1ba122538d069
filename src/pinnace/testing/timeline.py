"""Timelines: writes, Events, reconciles and faults in their order, as text and as a picture in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape

STYLES = {
    "created": "an object was created",
    "updated": "an object was updated",
    "deleted": "an object was deleted",
    "reconcile": "a reconcile, as long as it took",
    "failed": "a reconcile that failed or was interrupted",
    "event": "a Kubernetes Event",
    "fault": "an injected fault",
}
"""The kinds of entries, with their meaning in the legend."""


@dataclass(slots=True)
class TimelineEntry:
    """One line of a timeline. A reconcile reaches from its own place to that of the last entry before its end."""

    time: datetime
    lane: str
    """The program that did it."""
    style: str
    title: str
    details: list[str] = field(default_factory=list)
    length: int = 1
    """The number of entries that it spans, itself included."""

    def __str__(self) -> str:
        head = f"{self.time:%H:%M:%S.%f}"[:-3] + f" {self.title} by {self.lane}"
        return "\n".join([head, *(f"    {line}" for line in self.details)])


def render_text(entries: Sequence[TimelineEntry]) -> str:
    """Return a line for each entry, with its details below."""
    return "\n".join(str(entry) for entry in entries)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 13px/1.45 system-ui, sans-serif; margin: 0; color: #1c1e21; background: #fff }}
h1 {{ font-size: 18px; margin: 18px 24px 6px }}
.legend {{ margin: 0 24px 14px; display: flex; flex-wrap: wrap; gap: 6px 16px; color: #555; font-size: 12px }}
.legend i {{ display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid; border-radius: 2px;
  vertical-align: -1px }}
.picture {{ display: grid; grid-template-columns: 104px repeat({count}, minmax(190px, 1fr)); margin: 0 24px 32px;
  row-gap: 3px }}
.lane {{ position: sticky; top: 0; z-index: 3; background: #fff; font-weight: 600; padding: 8px 10px; grid-row: 1;
  border-bottom: 2px solid #c6cbd1; overflow-wrap: anywhere }}
.column {{ border-left: 1px solid #e4e7ea; grid-row: 2 / -1 }}
.time {{ color: #6a737d; font-variant-numeric: tabular-nums; grid-column: 1; padding: 4px 8px 4px 0;
  border-top: 1px solid #eef0f2 }}
.entry {{ z-index: 2; margin: 0 6px 0 24px; padding: 4px 8px; border-left: 4px solid; border-radius: 3px;
  overflow-wrap: anywhere }}
.span {{ z-index: 1; margin: 0 2px 0 8px; border-radius: 5px; border: 1px solid }}
.caption {{ z-index: 2; margin: 0 6px 0 9px; padding: 4px 8px; color: #555; overflow-wrap: anywhere }}
.entry pre, .caption pre {{ margin: 3px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 11.5px;
  color: #444 }}
.created {{ background: #e6f4ea; border-color: #2e7d4f }} .updated {{ background: #e8f0fe; border-color: #3367d6 }}
.deleted {{ background: #fce8e6; border-color: #c5221f }} .event {{ background: #fff4d6; border-color: #b7791f }}
.fault {{ background: #fde2f3; border-color: #b4238c }} .reconcile {{ background: #f1f3f5; border-color: #c6cbd1 }}
.failed {{ background: #fff1f0; border-color: #e0a09d }}
</style></head><body><h1>{title}</h1><div class="legend">{legend}</div><div class="picture">
{lanes}
{cells}
</div></body></html>
"""


def render_html(entries: Sequence[TimelineEntry], title: str) -> str:
    """Return a page: a column for each program, a row for each entry, time from top to bottom."""
    lanes = list(dict.fromkeys(entry.lane for entry in entries))
    heads = ['<div class="lane" style="grid-column: 1">time</div>']
    heads += [_head(lane, number, len(entries)) for number, lane in enumerate(lanes, start=2)]
    cells: list[str] = []
    last_time = ""
    for row, entry in enumerate(entries, start=2):
        time = f"{entry.time:%H:%M:%S.%f}"[:-3]
        if time != last_time:
            cells.append(f'<div class="time" style="grid-row: {row}">{time}</div>')
            last_time = time
        cells.append(_cell(entry, row, lanes.index(entry.lane) + 2))
    present = dict.fromkeys(entry.style for entry in entries)
    legend = "".join(
        f'<span><i class="{style}"></i>{meaning}</span>' for style, meaning in STYLES.items() if style in present
    )
    return _PAGE.format(
        title=escape(title), count=max(1, len(lanes)), legend=legend, lanes="\n".join(heads), cells="\n".join(cells)
    )


def _head(lane: str, column: int, rows: int) -> str:
    return (
        f'<div class="lane" style="grid-column: {column}">{escape(lane)}</div>'
        f'<div class="column" style="grid-column: {column}; grid-row: 2 / {rows + 2}"></div>'
    )


def _cell(entry: TimelineEntry, row: int, column: int) -> str:
    details = f"<pre>{escape(chr(10).join(entry.details))}</pre>" if entry.details else ""
    text, place = f"{escape(entry.title)}{details}", f"grid-column: {column}; grid-row: {row}"
    if entry.style not in ("reconcile", "failed"):
        return f'<div class="entry {entry.style}" style="{place}">{text}</div>'
    # The text has a row of its own, and the bar behind it reaches down to the last entry of the reconcile.
    bar = f'<div class="span {entry.style}" style="{place} / {row + entry.length}"></div>'
    return f'{bar}<div class="caption" style="{place}">{text}</div>'
