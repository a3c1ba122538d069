"""What krew needs to offer a kubectl plug-in to everybody: an archive of it, and the manifest that leads there."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from pinnace.model.objects import Object
from pinnace.sdk.kubectl.plugins import Plugin

PLATFORMS = ("linux", "darwin")
"""Where the archive runs: it is Python, but Windows starts no file without an ending."""

_LAUNCHER = '''#!/usr/bin/env python3
"""Runs {file}, which lies beside it. krew leads here through a link."""
import os
import runpy
import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl {name} needs Python 3.11 or newer; this is " + sys.version.split()[0])
try:
    import pinnace.sdk  # noqa: F401
except ImportError:
    sys.exit("kubectl {name} needs pinnace: " + sys.executable + " -m pip install 'pinnace>={needs}'")
runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "{file}"), run_name="__main__")
'''


def krew_archive(plugin: Plugin, file: Path, *, license: Path | None = None, needs: str) -> bytes:
    """A tar.gz with the plug-in's file, what starts it, and its license: the same bytes for the same content.

    `needs` is the oldest pinnace that it runs with.
    """
    launcher = _LAUNCHER.format(file=file.name, name=plugin.name, needs=needs)
    members = [(plugin.executable, launcher.encode(), 0o755), (file.name, file.read_bytes(), 0o644)]
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
    """What follows `kubectl krew install`."""
    return "-".join(plugin.name.split())


def krew_manifest(plugin: Plugin, *, archive: bytes, uri: str) -> Object:
    """The manifest for krew's index; `uri` is where the archive will be. Raises ValueError if something is missing."""
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
