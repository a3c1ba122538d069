"""`pinnace plugin`: install a kubectl plug-in on the PATH, or package it for krew."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pinnace import __version__
from pinnace.cli.extensions.reloading import modules_beside
from pinnace.cli.failure import fail
from pinnace.cli.kubectl.formats import as_documents
from pinnace.sdk.command.operator_files import NoOperator, file_of, only_in
from pinnace.sdk.kubectl import Plugin
from pinnace.sdk.kubectl.krew import archive_name, krew_archive, krew_manifest, krew_name

_RUNS = """#!{python}
# Created by `pinnace plugin install`; it may be deleted at any time.
from pinnace.sdk.command.operator_files import only_in
from pinnace.sdk.kubectl import Plugin

only_in({file!r}, Plugin){method}()
"""


class PluginAction(StrEnum):
    install = "install"
    uninstall = "uninstall"
    krew = "krew"


def plugin(
    action: Annotated[PluginAction, typer.Argument(help="The action.", metavar="install|uninstall|krew")],
    file: Annotated[str, typer.Argument(help="The plug-in's file; file.py:name if it has several.")],
    directory: Annotated[
        Path | None,
        typer.Option(help="install: a directory of your PATH.", show_default="the one that pinnace is in"),
    ] = None,
    out: Annotated[Path, typer.Option(help="krew: the directory for the archive and the manifest.")] = Path("dist"),
    uri: Annotated[
        str, typer.Option(help="krew: the archive's URL, as https://.../NAME.tar.gz.", show_default=False)
    ] = "",
    license_file: Annotated[
        Path | None,
        typer.Option("--license", help="krew: the license file; krew's index requires one.", show_default=False),
    ] = None,
) -> None:
    """Install a Python file as `kubectl NAME`, or package it for krew.

    \b
      pinnace plugin install websites.py
      kubectl websites --help
      pinnace plugin krew websites.py --uri https://example.com/websites-v0.1.0.tar.gz --license LICENSE

    A package needs none of this: with two lines under [project.scripts], which install prints, pip installs it.
    """
    try:
        plug, source = only_in(file, Plugin), file_of(file).resolve()
        if action is PluginAction.krew:
            _write_for_krew(plug, source, out, uri, license_file)
        elif action is PluginAction.install:
            _install(plug, file, directory or _own_directory())
        else:
            _uninstall(plug, directory or _own_directory())
    except (NoOperator, ValueError, OSError) as error:
        fail(error)


def _install(plug: Plugin, target: str, directory: Path) -> None:
    path = file_of(target)
    whole = f"{path.resolve()}{target.removeprefix(str(path))}"
    directory.mkdir(parents=True, exist_ok=True)
    for executable, method in ((plug.executable, ""), (plug.completer, ".complete")):
        place = directory / executable
        place.write_text(_RUNS.format(python=sys.executable, file=whole, method=method))
        place.chmod(place.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    print(f"installed {directory / plug.executable}; try: kubectl {plug.name} --help")
    if shutil.which(plug.executable) != str(directory / plug.executable):
        print(f'kubectl looks for it on the PATH: export PATH="{directory}:$PATH"')
    module = path.stem
    print("In a package, pip installs it by these lines of pyproject.toml:")
    print(f'  [project.scripts]\n  {plug.executable} = "{module}:plugin"')
    print(f'  {plug.completer} = "{module}:plugin.complete"')


def _uninstall(plug: Plugin, directory: Path) -> None:
    for executable in (plug.executable, plug.completer):
        (directory / executable).unlink(missing_ok=True)
    print(f"removed kubectl {plug.name} from {directory}")


def _write_for_krew(plug: Plugin, source: Path, out: Path, uri: str, license_file: Path | None) -> None:
    beside = modules_beside(source)
    archive = krew_archive(plug, source, beside=beside, license=license_file, needs=__version__)
    manifest = krew_manifest(plug, archive=archive, uri=uri)
    out.mkdir(parents=True, exist_ok=True)
    (out / archive_name(plug)).write_bytes(archive)
    (out / f"{krew_name(plug)}.yaml").write_text(as_documents([manifest]))
    print(f"written: {out / archive_name(plug)}, which goes to {uri}, and {out / krew_name(plug)}.yaml; try them with")
    print(f"  kubectl krew install --manifest={out / krew_name(plug)}.yaml --archive={out / archive_name(plug)}")


def _own_directory() -> Path:
    """Return the directory of the pinnace command, which is on the user's PATH."""
    command = shutil.which("pinnace")
    return Path(os.path.realpath(command)).parent if command else Path(sys.executable).parent
