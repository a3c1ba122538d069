"""Prints the lines by which this machine stands for the images of the notes, without a registry.

    python3 examples/11-notes/images/table.py >> DATA_DIRECTORY/node/images/host-images

Each line has the name of an image, a program that the machine must have, and the command of a container.
"""

from __future__ import annotations

import base64
import shlex
from pathlib import Path

_HERE = Path(__file__).parent
_PROGRAMS = {
    "luksa/website-controller": "website_controller.py",
    "openweb/git-sync": "git_sync.py",
    "alicek106/rr-test": "echo_hostname.py",
}
_COMMANDS = {
    "luksa/kubectl-proxy": ("kubectl", "kubectl", "proxy", "--port=8001"),
    "nginx": ("python3", "python3", "-m", "http.server", "80", "--directory", "/usr/share/nginx/html"),
}


def table() -> str:
    """The whole table. A program goes into its line, since the containers do not see this directory."""
    lines = [shlex.join((name, *command)) for name, command in _COMMANDS.items()]
    for name, file in _PROGRAMS.items():
        code = base64.b64encode((_HERE / file).read_bytes()).decode()
        lines.append(shlex.join((name, "python3", "python3", "-c", f"import base64; exec(base64.b64decode('{code}'))")))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
