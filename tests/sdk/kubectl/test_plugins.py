"""Functions that become kubectl plug-ins."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import pytest
import typer
import yaml
from tests.server.in_process import config_map
from tests.testing.both_ways import in_process_only
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.client.client import Client
from pinnace.sdk.kubectl import Plugin, names_of
from pinnace.sdk.kubectl.krew import krew_archive, krew_manifest
from pinnace.testing.cluster import Cluster

FILE = '''"""A plug-in."""
from pinnace.client.client import Client
from pinnace.sdk.kubectl import Plugin

plugin = Plugin("keys", version="1.2.3", description="Shows the keys of a ConfigMap.\\nAnd nothing else.")


@plugin.command()
async def keys(client: Client, name: str) -> None:
    found = await client.get("v1/ConfigMap", name)
    print(*found.get("data", {}))


if __name__ == "__main__":
    plugin()
'''


def keys() -> Plugin:
    plugin = Plugin("keys", description="Shows the keys of a ConfigMap.")

    @plugin.command()
    async def keys(
        client: Client,
        name: Annotated[str, typer.Argument(autocompletion=names_of("v1/ConfigMap"))],
        upper: Annotated[bool, typer.Option("--upper", help="Loudly.")] = False,
    ) -> None:
        """Show the keys of a ConfigMap."""
        obj = await client.get("v1/ConfigMap", name, namespace=client.namespace)
        print(*(key.upper() if upper else key for key in obj.get("data", {})))

    return plugin


async def test_a_function_is_given_a_client_and_its_own_arguments(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.client.create(config_map("settings", {"a": "1", "b": "2"}))
    await keys().run("settings", "--upper", client=cluster.client)
    assert capsys.readouterr().out == "A B\n"


async def test_a_mistake_ends_it_as_it_ends_a_process(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        await keys().run("--lower", client=cluster.client)
    assert end.value.code == 2
    assert "Usage: kubectl keys" in capsys.readouterr().err


async def test_several_functions_are_subcommands_and_need_not_be_async(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = Plugin("tool")

    @plugin.command()
    def where(client: Client) -> None:
        print(client.namespace)

    @plugin.command("hi")
    def greet(who: str = "you") -> None:
        print(f"hello {who}")

    await plugin.run("where", client=cluster.client)
    await plugin.run("hi", "--who", "ann", client=cluster.client)
    assert capsys.readouterr().out == "default\nhello ann\n"


@pytest.mark.parametrize(
    ("name", "executable"),
    [("keys", "kubectl-keys"), ("config-keys", "kubectl-config_keys"), ("config keys", "kubectl-config-keys")],
)
def test_the_file_is_named_as_kubectl_looks_for_it(name: str, executable: str) -> None:
    plugin = Plugin(name)
    assert plugin.executable == executable
    assert plugin.completer == executable.replace("kubectl", "kubectl_complete")


@pytest.mark.parametrize("name", ["", "Keys", "-x", "keys/..", "a--b"])
def test_a_name_that_cannot_stand_after_kubectl_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a plug-in"):
        Plugin(name)


def test_a_parameter_that_is_a_flag_of_kubectl_is_refused() -> None:
    def bad(client: Client, namespace: str = "") -> None: ...

    with pytest.raises(ValueError, match="bad has a parameter namespace, which is a flag of kubectl's: rename it"):
        Plugin("bad").command()(bad)


@in_process_only
async def test_completion_asks_the_cluster_that_the_flags_say(cluster: Cluster, kubeconfig: Path) -> None:
    for name in ("settings", "secrets", "other"):
        await cluster.client.create(config_map(name))
    plugin = keys()
    command = ["--kubeconfig", str(kubeconfig), "se"]
    assert sorted(await asyncio.to_thread(plugin.completions, command)) == ["secrets", "settings"]
    nowhere = ["--kubeconfig", "/nowhere", "se"]
    assert await asyncio.to_thread(plugin.completions, nowhere) == []
    assert await asyncio.to_thread(plugin.completions, ["--up"]) == ["--upper\tLoudly."]
    assert await asyncio.to_thread(plugin.completions, ["it's", "--up"]) == ["--upper\tLoudly."]


def test_entry_points_of_a_package_lead_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys_of.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = EntryPoint("kubectl-keys", "keys_of:plugin", "console_scripts").load()
    complete = EntryPoint("kubectl_complete-keys", "keys_of:plugin.complete", "console_scripts").load()
    assert callable(plugin)
    assert complete.__self__ is plugin


def test_krew_is_given_an_archive_that_runs_and_a_manifest_that_leads_there(tmp_path: Path) -> None:
    source, license_file = tmp_path / "keys.py", tmp_path / "LICENSE"
    source.write_text(FILE)
    license_file.write_text("Do as you like.")
    uri = "https://example.com/keys.tar.gz"
    command = ["plugin", "krew", str(source), "--uri", uri, "--license", str(license_file), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    manifest = yaml.safe_load((tmp_path / "keys.yaml").read_text())
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["metadata"] == {"name": "keys"}
    spec = manifest["spec"]
    assert (spec["version"], spec["shortDescription"]) == ("v1.2.3", "Shows the keys of a ConfigMap")
    (platform,) = spec["platforms"]
    assert platform["selector"]["matchExpressions"][0]["values"] == ["linux", "darwin"]
    archive = tmp_path / "keys-v1.2.3.tar.gz"
    output = subprocess.run(["sha256sum", str(archive)], capture_output=True, text=True, check=True)
    assert platform["sha256"] == output.stdout.split()[0]
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(archive, unpacked)
    assert sorted(path.name for path in unpacked.iterdir()) == ["LICENSE", "keys.py", "kubectl-keys"]
    link = tmp_path / platform["bin"]  # krew puts links to it on the PATH.
    link.symlink_to(unpacked / platform["bin"])
    ran = subprocess.run([sys.executable, str(link), "--help"], capture_output=True, text=True, check=True)
    assert "Usage: kubectl keys" in ran.stdout


def test_the_modules_beside_a_plugin_are_packed_with_it(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text(
        FILE.replace("import Plugin\n", "import Plugin\nfrom parts_of_keys.words import TITLE\n")
    )
    (tmp_path / "parts_of_keys").mkdir()
    (tmp_path / "parts_of_keys" / "__init__.py").write_text("")
    (tmp_path / "parts_of_keys" / "words.py").write_text('TITLE = "Keys"\n')
    (tmp_path / "unused.py").write_text("")
    out = tmp_path / "dist"
    command = ["plugin", "krew", str(tmp_path / "keys.py"), "--uri", "https://example.com/k.tar.gz", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(out / "keys-v1.2.3.tar.gz", unpacked)
    assert sorted(str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()) == [
        "keys.py",
        "kubectl-keys",
        "parts_of_keys/__init__.py",
        "parts_of_keys/words.py",
    ]
    ran = subprocess.run(
        [sys.executable, str(unpacked / "kubectl-keys"), "--help"], capture_output=True, text=True, cwd="/"
    )
    assert "Usage: kubectl keys" in ran.stdout, ran.stderr


def test_an_archive_of_the_same_file_is_the_same(tmp_path: Path) -> None:
    source = tmp_path / "keys.py"
    source.write_text(FILE)
    first = krew_archive(keys(), source, needs="0.1")
    source.touch()
    assert krew_archive(keys(), source, needs="0.1") == first
    with tarfile.open(fileobj=io.BytesIO(first)) as opened:
        assert opened.getmember("kubectl-keys").mode == 0o755


@pytest.mark.parametrize(
    ("plugin", "uri", "message"),
    [
        (Plugin("bare"), "https://example.com/x.tar.gz", "krew shows a short description"),
        (keys(), "http://example.com/x.tar.gz", "over https only"),
    ],
    ids=["no description", "no https"],
)
def test_an_archive_that_krew_refuses_is_refused(plugin: Plugin, uri: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        krew_manifest(plugin, archive=b"", uri=uri)


def test_a_file_without_a_plugin_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    result = CliRunner().invoke(app, ["plugin", "install", str(tmp_path / "empty.py")])
    assert result.exit_code == 1
    assert 'write: plugin = Plugin("empty")' in result.output


def test_an_installed_plugin_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text(FILE)
    for action, left in (("install", {"kubectl-keys", "kubectl_complete-keys"}), ("uninstall", set())):
        result = CliRunner().invoke(
            app, ["plugin", action, str(tmp_path / "keys.py"), "--directory", str(tmp_path / "b")]
        )
        assert result.exit_code == 0, result.output
        assert {path.name for path in (tmp_path / "b").iterdir()} == left
