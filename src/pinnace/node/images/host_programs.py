"""Programs that containers of the image `host` have beside those of this machine.

Manifests that name `busybox` expect its applets. A machine with busybox has them without links to their names; nslookup
is a script here, since the applet of today ignores the search list of /etc/resolv.conf.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

MACHINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACE = "var/lib/host-programs"
"""The path of these programs in a container."""
CONTAINER_PATH = f"PATH={MACHINE_PATH}:/{PLACE}"
_SECONDS = 10.0
_NSLOOKUP = r"""#!/bin/sh
# nslookup NAME: print the addresses of a name as the resolver of the C library finds them, with its search list.
case $# in
0) echo "Usage: nslookup NAME" >&2; exit 1 ;;
1) ;;
*) echo "nslookup: this script asks the server in /etc/resolv.conf alone; install nslookup for options" >&2; exit 1 ;;
esac
canonical() { set -- $(getent hosts "$1"); echo "${2:+ $2}"; }
server=
while read -r word value _; do
  [ "$word" = nameserver ] && { server=$value; break; }
done < /etc/resolv.conf
echo "Server:    $server"
echo "Address 1: $server$(canonical "$server")"
echo
found=$(getent ahosts "$1") || { echo "nslookup: can't resolve '$1'" >&2; exit 1; }
echo "Name:      $1"
number=0
seen=" "
for address in $found; do
  case $address in *[!0-9.:a-f]*|"") continue ;; *[.:]*) ;; *) continue ;; esac
  case $seen in *" $address "*) continue ;; esac
  seen="$seen$address "
  number=$((number + 1))
  echo "Address $number: $address$(canonical "$address")"
done
"""


def make_programs(directory: Path) -> Path | None:
    """Fill the directory with the programs that this machine lacks. Return None if it cannot be written."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if shutil.which("getent", path=MACHINE_PATH):
            _add_script(directory / "nslookup")
        busybox = shutil.which("busybox", path=MACHINE_PATH)
        if busybox:
            _add_applets(directory, busybox)
    except OSError:
        return None
    return directory


def _add_script(path: Path) -> None:
    new = path.with_name(f".{path.name}-{os.getpid()}")
    new.write_text(_NSLOOKUP)
    new.chmod(0o755)
    new.replace(path)  # A container that runs the old one keeps it.


def _add_applets(directory: Path, busybox: str) -> None:
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    for name in listed.stdout.split():
        if "/" not in name and not shutil.which(name, path=MACHINE_PATH):
            with contextlib.suppress(FileExistsError):
                (directory / name).symlink_to(busybox)
