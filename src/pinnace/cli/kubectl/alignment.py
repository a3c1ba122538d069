"""Aligns text in columns as Go's tabwriter does: cells end with a tab, and a column is as wide as its widest cell."""

from __future__ import annotations


def align_columns(text: str, *, min_width: int, padding: int) -> str:
    """Replace tabs with spaces so that columns align. A column ends where a line has no cell in it."""
    lines = [line.split("\t") for line in text.split("\n")]
    written: list[str] = []
    _write(lines, 0, len(lines), [], written, min_width, padding)
    return "\n".join(written)


def _write(
    lines: list[list[str]], first: int, end: int, widths: list[int], written: list[str], min_width: int, padding: int
) -> None:
    column = len(widths)
    here = first
    while here < end:
        if column >= len(lines[here]) - 1:
            here += 1
            continue
        _plain(lines, first, here, widths, written)
        first = here
        width = min_width
        while here < end and column < len(lines[here]) - 1:
            width = max(width, len(lines[here][column]) + padding)
            here += 1
        _write(lines, first, here, [*widths, width], written, min_width, padding)
        first = here
    _plain(lines, first, end, widths, written)


def _plain(lines: list[list[str]], first: int, end: int, widths: list[int], written: list[str]) -> None:
    for cells in lines[first:end]:
        padded = [cell.ljust(widths[place]) if place < len(widths) else cell for place, cell in enumerate(cells)]
        written.append("".join(padded))


class Rows:
    """Rows of a growing table: columns never get narrower, so that later rows align with earlier ones."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def format(self, rows: list[list[str]]) -> str:
        for row in rows:
            for place, cell in enumerate(row[:-1]):
                if place == len(self._widths):
                    self._widths.append(6)
                self._widths[place] = max(self._widths[place], len(cell) + 3)
        return "".join(
            "".join(cell.ljust(self._widths[place]) for place, cell in enumerate(row[:-1]))
            + (row[-1] if row else "")
            + "\n"
            for row in rows
        )
