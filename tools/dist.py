"""Build the wheel and the sdist into dist/, and test the wheel: install it in an empty environment and start a cluster.

    make dist

Needs an index of packages to install from (PyPI, or the one that pip is configured with).
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
START_SECONDS = 30.0


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output. Print the output and exit if the command fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def make_environment(directory: Path, *packages: str | Path) -> Path:
    """Create an environment with these packages and return its bin directory."""
    run(sys.executable, "-m", "venv", directory)
    scripts = directory / "bin"
    run(scripts / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages, cwd=directory)
    return scripts


def build(scratch: Path) -> tuple[Path, Path]:
    """Build the sdist, then the wheel from the sdist, so that the sdist is complete."""
    shutil.rmtree(DIST, ignore_errors=True)
    scripts = make_environment(scratch / "build", "build")
    run(scripts / "python", "-m", "build", "--outdir", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check(wheel: Path, scratch: Path) -> str:
    """Install the wheel in an empty environment, start a cluster and read a namespace. Return the version."""
    scripts = make_environment(scratch / "empty", wheel)
    version = run(scripts / "pinnace", "version", cwd=scratch)
    config = scratch / "kubeconfig"
    command = [scripts / "pinnace", "up", "--ephemeral", "--no-node", "--port", "0", "--kubeconfig", config]
    cluster = subprocess.Popen(list(map(str, command)), cwd=scratch, env=_clean_environment())
    try:
        wait_for(config, cluster)
        name = read_namespace(config)
    finally:
        cluster.terminate()
        code = cluster.wait(timeout=START_SECONDS)
    if name != "default" or code:
        sys.exit(f"expected the namespace default and exit code 0; found {name!r} and {code}")
    return version.splitlines()[0]


def _clean_environment() -> dict[str, str]:
    """Return the environment without what would lead Python to the source checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def wait_for(path: Path, cluster: subprocess.Popen[bytes]) -> None:
    """Wait until the cluster writes its kubeconfig, which it does when it is ready."""
    end = time.monotonic() + START_SECONDS
    while not path.exists():
        if cluster.poll() is not None or time.monotonic() > end:
            sys.exit(f"pinnace up was not ready within {START_SECONDS:g} s; its messages are above")
        time.sleep(0.05)


def read_namespace(config: Path) -> str:
    """Read a namespace over HTTPS with the token of a kubeconfig."""
    loaded = yaml.safe_load(config.read_text())
    cluster, user = loaded["clusters"][0]["cluster"], loaded["users"][0]["user"]
    request = urllib.request.Request(
        cluster["server"] + "/api/v1/namespaces/default", headers={"Authorization": f"Bearer {user['token']}"}
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # A throw-away cluster on loopback.
    with urllib.request.urlopen(request, context=context, timeout=START_SECONDS) as answer:
        name: str = json.load(answer)["metadata"]["name"]
    return name


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pinnace-dist-") as scratch:
        wheel, sdist = build(Path(scratch))
        version = check(wheel, Path(scratch))
    for file in (wheel, sdist):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.1f} MB")
    print(f"the wheel works in an empty environment: {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
