"""`pinnace timeline`: show the changes of a recording, as text or as a page in HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.failure import fail
from pinnace.testing.recordings import BadRecording, read_recording, versions_of
from pinnace.testing.timeline import render_html, render_text


def timeline(
    file: Annotated[Path, typer.Argument(help="A file of pinnace record.", metavar="FILE")],
    html: Annotated[bool, typer.Option("--html", help="Print a page in HTML.")] = False,
) -> None:
    """Print the changes of a recording, oldest first, each with the fields that differ.

    \b
    Examples:
      pinnace timeline incident.jsonl
      pinnace timeline incident.jsonl --html > incident.html
    """
    try:
        recording = read_recording(file)
    except (BadRecording, OSError) as error:
        fail(error)
    if recording.is_cut_off:
        print(f"pinnace: {file} is cut off: its last line is left out", file=sys.stderr)
    entries = [version.entry() for version in versions_of(recording)]
    if not entries:
        print(f"pinnace: nothing changed while {file} was recorded", file=sys.stderr)
    if entries or html:
        print(render_html(entries, file.name) if html else render_text(entries))
