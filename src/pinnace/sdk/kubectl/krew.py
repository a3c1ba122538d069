"""The archive and the manifest by which krew distributes a kubectl plug-in."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from pinnace.model.objects import Object
from pinnace.sdk.kubectl.plugins import Plugin

PLATFORMS = ("linux", "darwin")
"""Where the archive runs. Not on Windows, which starts no file without an extension."""

_LAUNCHER = '''#!/usr/bin/env python3
"""Runs {file} in the same directory. krew starts this file through a link."""
import os
import runpy
import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl {name} needs Python 3.11 or newer; this is " + sys.version.split()[0])
try:
    import pinnace.sdk  # noqa: F401
except ImportError:
    sys.exit("kubectl {name} needs pinnace: " + sys.executable + " -m pip install 'pinnace>={needs}'")
place = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, place)
runpy.run_path(os.path.join(place, "{file}"), run_name="__main__")
'''


def krew_archive(
    plugin: Plugin, file: Path, *, beside: Iterable[Path] = (), license: Path | None = None, needs: str
) -> bytes:
    """Return a reproducible tar.gz with the plug-in's file, the files `beside` it, its launcher and its license.

    `needs` is the oldest version of pinnace that it runs with.
    """
    launcher = _LAUNCHER.format(file=file.name, name=plugin.name, needs=needs)
    members = [(plugin.executable, launcher.encode(), 0o755), (file.name, file.read_bytes(), 0o644)]
    root = file.resolve().parent
    names = {str(path.resolve().relative_to(root)): path for path in beside}
    members += [(name, path.read_bytes(), 0o644) for name, path in sorted(names.items())]
    if license is not None:
        members.append(("LICENSE", license.read_bytes(), 0o644))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content, mode in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def archive_name(plugin: Plugin) -> str:
    return f"{krew_name(plugin)}-v{plugin.version}.tar.gz"


def krew_name(plugin: Plugin) -> str:
    """Return the name for `kubectl krew install`."""
    return "-".join(plugin.name.split())


def krew_manifest(plugin: Plugin, *, archive: bytes, uri: str) -> Object:
    """Return the manifest for krew's index; `uri` is the archive's URL. Raise ValueError if something is missing."""
    if not plugin.description:
        raise ValueError(f"krew shows a short description; write: Plugin({plugin.name!r}, description=...)")
    if not uri.startswith("https://"):
        raise ValueError(f"krew fetches archives over https only, not from {uri!r}")
    chosen = {"matchExpressions": [{"key": "os", "operator": "In", "values": list(PLATFORMS)}]}
    platform = {
        "selector": chosen,
        "uri": uri,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "files": [{"from": "*", "to": "."}],
        "bin": plugin.executable,
    }
    needs = "This plug-in needs Python 3.11 or newer, and pinnace: python3 -m pip install pinnace\n"
    spec: Object = {
        "version": f"v{plugin.version}",
        "homepage": plugin.homepage,
        "shortDescription": plugin.description.partition("\n")[0].rstrip("."),
        "description": plugin.description,
        "caveats": needs + plugin.caveats,
        "platforms": [platform],
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": krew_name(plugin)},
        "spec": {name: value for name, value in spec.items() if value},
    }
