"""Build the wheels and sdists of pinnace-sdk and pinnace into dist/, and test the wheels in empty environments.

    make dist

A cluster is started from pinnace, and an operator of every kind runs against it from pinnace-sdk alone. Needs an
index of packages to install from (PyPI, or the one that pip is configured with).
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
import zipfile
from pathlib import Path

import yaml
from tools.distributions import lay_out_rest, lay_out_sdk

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
OPERATOR_TESTS = ROOT / "tests" / "sdk" / "command"
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
    """Build both sdists, and from them the wheels, so that the sdists are complete. Return the wheels."""
    shutil.rmtree(DIST, ignore_errors=True)
    scripts = make_environment(scratch / "build", "build")
    version = read_version()
    lay_out_sdk(scratch / "pinnace-sdk")
    lay_out_rest(scratch / "pinnace", version)
    for name in ("pinnace-sdk", "pinnace"):
        run(scripts / "python", "-m", "build", "--outdir", DIST, scratch / name)
    return DIST / f"pinnace_sdk-{version}-py3-none-any.whl", DIST / f"pinnace-{version}-py3-none-any.whl"


def read_version() -> str:
    text = (ROOT / "src" / "pinnace" / "__init__.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


def check(sdk: Path, whole: Path, scratch: Path) -> str:
    """Start a cluster in an environment with both wheels; run an operator in one with pinnace-sdk. Return versions."""
    if shared := set(_names(sdk)) & set(_names(whole)):
        sys.exit(f"both wheels have {', '.join(sorted(shared))}")
    operators = make_environment(scratch / "operators", sdk)
    scripts = make_environment(scratch / "empty", sdk, whole)
    version = run(scripts / "pinnace", "version", cwd=scratch)
    config = scratch / "kubeconfig"
    command = [scripts / "pinnace", "up", "--ephemeral", "--no-node", "--port", "0", "--kubeconfig", config]
    cluster = subprocess.Popen(list(map(str, command)), cwd=scratch, env=_clean_environment())
    try:
        wait_for(config, cluster)
        name = read_namespace(config)
        check_operator(operators, scripts, config, scratch)
    finally:
        cluster.terminate()
        code = cluster.wait(timeout=START_SECONDS)
    if name != "default" or code:
        sys.exit(f"expected the namespace default and exit code 0; found {name!r} and {code}")
    return version.splitlines()[0]


def check_operator(operators: Path, scripts: Path, config: Path, scratch: Path) -> None:
    """Run the command of an operator's image, use all that the operator serves, and stop it."""
    shutil.copy(OPERATOR_TESTS / "complete_operator.py", scratch)
    shutil.copy(OPERATOR_TESTS / "exercise.py", scratch)
    command = [operators / "pinnace-operator", "run", "complete_operator.py", "--kubeconfig", config]
    operator = subprocess.Popen(
        list(map(str, command)), cwd=scratch, env=_clean_environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        if operator.stdout is None or not operator.stdout.readline():
            sys.exit("the operator did not start; its messages are above")
        run(scripts / "python", "exercise.py", config, cwd=scratch)
    finally:
        operator.terminate()
        code = operator.wait(timeout=START_SECONDS)
    if code:
        sys.exit(f"the operator ended with {code}")


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


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
        sdk, whole = build(Path(scratch))
        version = check(sdk, whole, Path(scratch))
    for file in sorted(DIST.iterdir()):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.1f} MB")
    print(f"the wheels work in empty environments: {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
