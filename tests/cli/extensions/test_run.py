"""pinnace run starts again what is saved, and pinnace why says what an operator in another process has done."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinnace

SECONDS = 40.0
SOURCES = Path(pinnace.__file__).parents[1]
SHAPES = "SIZE = 1\n"
OPERATOR = '''
import shapes

from pinnace.sdk import Context, CustomResource, Field, Model, Operator


class SiteSpec(Model):
    replicas: int = Field(default=1, ge=0)


class SiteStatus(Model):
    ready: int = 0


class Site(CustomResource[SiteSpec, SiteStatus], group="twin.example.com", version="v1", short_names=["st"]):
    """A site."""


operator = Operator("site-controller")


@operator.reconcile(Site, owns=["v1/ConfigMap"])
async def reconcile(site: Site, ctx: Context) -> None:
    if site.spec.replicas > 5:
        raise RuntimeError("too many")
    data = {"size": str(site.spec.replicas * shapes.SIZE)}
    await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.name}, "data": data})
    site.status.ready = site.spec.replicas
'''
SITE = "{apiVersion: twin.example.com/v1, kind: Site, metadata: {name: blog}, spec: {replicas: COUNT}}"


class Run:
    """`pinnace run --dev` in a process of its own; what it says can be waited for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sockets = directory / ("long" * 30)  # Longer than the path of a socket may be.
        self.lines: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            self._command("run", "site.py", "--dev", "--kubeconfig", "kubeconfig"),
            cwd=directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, words: str) -> str:
        """All lines up to one with these words."""
        passed = []
        while True:
            try:
                line = self._lines.get(timeout=SECONDS)
            except queue.Empty:
                raise AssertionError(f"it never said {words!r}:\n{''.join(self.lines)}") from None
            self.lines.append(line)
            passed.append(line)
            if words in line:
                return "".join(passed)

    def pinnace(self, *arguments: str, stdin: str = "") -> str:
        ran = subprocess.run(
            self._command(*arguments),
            cwd=self.directory,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return ran.stdout or ran.stderr

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pinnace.cli.main", *arguments]

    def _environment(self) -> dict[str, str]:
        place = {"KUBECONFIG": str(self.directory / "kubeconfig"), "XDG_RUNTIME_DIR": str(self.sockets)}
        return {**os.environ, **place, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "site.py").write_text(OPERATOR)
    (tmp_path / "shapes.py").write_text(SHAPES)
    started = Run(tmp_path)
    try:
        started.until("is running")
        yield started
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(timeout=SECONDS) == 0
    finally:
        started.process.kill()


def test_a_saved_file_replaces_the_running_operator_and_the_cluster_stays(run: Run) -> None:
    assert run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "2")) == "site.twin.example.com/blog created\n"
    operator = run.directory / "site.py"

    (run.directory / "beside.py").write_text("it = 'has nothing to do with it'\n")
    operator.write_text(OPERATOR + "def broken(:\n")
    message = run.until("runs unchanged")
    assert "site.py was saved: it cannot be read as Python" in message
    assert "invalid syntax" in message
    assert "def broken(:" in message

    operator.write_text(OPERATOR.replace("    replicas: int", '    title: str = "new"\n    replicas: int'))
    message = run.until("is running")
    assert "site.py was saved: SiteSpec changed" in message
    assert "+ Site v1: .spec.title" in message
    assert "beside.py" not in message
    assert run.pinnace("get", "st", "blog", "-o", "jsonpath={.spec.replicas}{.spec.title}") == "2new"

    operator.write_text(OPERATOR + "undefined_name\n")
    message = run.until("runs unchanged")
    assert "NameError: name 'undefined_name' is not defined" in message


def test_a_module_beside_the_file_is_loaded_again_too(run: Run) -> None:
    run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "2"))
    watch = ["get", "cm", "blog", "-o", "jsonpath={.data.size}"]
    (run.directory / "shapes.py").write_text("SIZE = 10\n")
    assert "shapes.py was saved: SIZE changed" in run.until("is running")
    run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "3"))
    _until_ready(run, "3")
    assert run.pinnace(*watch) == "30"


def _until_ready(run: Run, count: str) -> None:
    """Wait for the status: a watch that ends when the operator has written it."""
    environment = {**os.environ, "KUBECONFIG": str(run.directory / "kubeconfig"), "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-u", "-m", "pinnace.cli.main", "get", "site", "blog", "-w"]
    form = ["-o", 'jsonpath={.status.ready}{"\\n"}']
    watching = subprocess.Popen([*command, *form], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        for line in watching.stdout:
            if line.strip() == count:
                return
        raise AssertionError("the watch ended")
    finally:
        watching.kill()
        watching.wait()


def test_why_says_whose_change_which_fields_and_who(run: Run) -> None:
    run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "2"))
    _until_ready(run, "2")
    run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "3"))
    _until_ready(run, "3")
    message = run.pinnace("why", "site/blog")
    assert message.startswith("site-controller (site-controller-site, process ")
    assert "because Site default/blog was added" in message
    assert "because Site default/blog was modified by kubectl-client-side-apply (Update): .spec.replicas" in message
    assert "success (waited " in message
    assert run.pinnace("why", "st", "blog").splitlines()[0] == message.splitlines()[0]

    run.pinnace("apply", "-f", "-", stdin=SITE.replace("COUNT", "9"))
    run.until("RuntimeError: too many")
    document = json.loads(run.pinnace("why", "sites", "blog", "-o", "json"))[0]["controllers"][0]
    failed = document["runs"][0]
    assert (failed["outcome"], failed["error"]) == ("error", "RuntimeError: too many")
    assert failed["again"] > 0
    assert "blog: error (waited" in run.pinnace("why")


def test_why_says_who_can_be_asked(run: Run) -> None:
    assert run.pinnace("why", "pod/x") == "error: no operator here reconciles pod; they reconcile: Site\n"
    assert "no operator answers" in run.pinnace("why", "site/x", "--operator", "other")
    assert "  no reconcile is remembered: does the object exist?" in run.pinnace("why", "site/nope")


def test_the_socket_is_for_its_user_alone(run: Run) -> None:
    place = run.sockets / "pinnace"
    assert place.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in place.iterdir()] == [".sock"]


USER = """
from pinnace.sdk import CustomResource, Model, Operator


class Spec(Model):
    host: str = ""


class Certificate(CustomResource[Spec, None], group="certs.example.com", version="v1", external=True):
    "Somebody else's."


operator = Operator("signer")


@operator.validate(Certificate)
def validate(certificate: Certificate) -> None:
    pass
"""
CRD = "certificates.certs.example.com"


def test_the_kinds_of_others_are_installed_in_a_cluster_of_its_own_and_in_no_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(USER)
    run.until("site.py was saved")
    assert f"{CRD} is an external kind that is not installed in this cluster" in run.until("is running")
    assert run.pinnace("get", "crd", CRD, "-o", "name").endswith(f"/{CRD}\n")
    run.pinnace("delete", "crd", CRD)
    other = subprocess.Popen(
        [sys.executable, "-m", "pinnace.cli.main", "run", "site.py", "--kubeconfig", "kubeconfig", "--no-reload"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "XDG_RUNTIME_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert any("is running" in line for line in other.stdout)
        assert "NotFound" in run.pinnace("get", "crd", CRD)
    finally:
        other.terminate()
        other.communicate(timeout=SECONDS)
