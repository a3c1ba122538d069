"""API servers in a process of their own, that of examples/07-website-api too, used as if they were built in."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl
from tests.sdk.cms import running_cms

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "07-website-api"
SITE = (EXAMPLE / "kubia.yaml").read_text()
KIND = "website.extensions.example.com"


@contextmanager
def served(kubectl: Kubectl, file: Path, **environment: str) -> Iterator[None]:
    """An API server in a process of its own, from when it is running until it has cleaned up."""
    command = [sys.executable, "-m", "pinnace.cli.main", "run", str(file)]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubectl.kubeconfig)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        output = ""
        while "is running" not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        yield
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in rest and "Unclosed" not in rest
    assert KIND not in kubectl("api-resources -o name")


@pytest.fixture
def table(kubectl: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """The SQLite file behind the API, while that is served."""
    file = tmp_path / "websites.db"
    with served(kubectl, EXAMPLE / "website_api.py", WEBSITES_DB=str(file)):
        yield file


OVER_REST = """
import os
from pinnace.sdk import CustomResource, Metadata, Model, Operator, RestCollection

class WebsiteSpec(Model):
    git_repo: str

class Website(
    CustomResource[WebsiteSpec, None], group="extensions.example.com", version="v1alpha1", short_names=["ws"]
):
    "A site of the CMS."

def website_of(row):
    metadata = Metadata(**row.get("kubernetes", {}) | {"namespace": row["customer"], "name": row["slug"]})
    return Website(metadata=metadata, spec=WebsiteSpec(git_repo=row["repository"]))

def row_of(site):
    customer, slug = site.key
    row = {"customer": customer, "slug": slug, "repository": site.spec.git_repo}
    return row | {"kubernetes": site.metadata.to_wire()}

operator = Operator("cms-websites")
sites = RestCollection(os.environ["CMS_URL"] + "/sites", to_object=website_of, to_row=row_of, rows="results")
operator.serves(Website, sites, refresh=0.5)
"""


def test_a_rest_service_is_applied_to_got_watched_and_deleted_from(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "cms_websites.py"
    file.write_text(OVER_REST)
    with running_cms() as cms, served(kubectl, file, CMS_URL=cms.url):
        assert kubectl("apply -f -", stdin=SITE) == f"{KIND}/kubia created\n"
        assert kubectl("apply -f -", stdin=SITE) == f"{KIND}/kubia unchanged\n"
        assert kubectl("apply -f -", stdin=SITE.replace("luksa", "ann")) == f"{KIND}/kubia configured\n"
        assert cms.sites["kubia"]["repository"] == "https://github.com/ann/kubia-website-example.git"
        assert kubectl("get ws").split()[:3] == ["NAME", "AGE", "kubia"]
        watch = kubectl.start("get ws --watch -o 'jsonpath={.metadata.name}={.spec.gitRepo}{\"\\n\"}'")
        try:
            assert watch.stdout is not None
            assert watch.stdout.readline().startswith("kubia=")
            shop = {"customer": kubectl.namespace, "slug": "shop", "repository": "https://example.com/shop.git"}
            cms.sites["shop"] = shop
            assert watch.stdout.readline() == "shop=https://example.com/shop.git\n"
        finally:
            watch.terminate()
            watch.wait()
        refused = kubectl.failure("apply -f -", stdin=SITE.replace("kubia-website-example", "test"))
        assert "(BadRequest)" in refused and "this is not for tests" in refused
        assert kubectl("delete ws --all").count("deleted") == 2
        assert cms.sites == {}
        assert "NotFound" in kubectl.failure("get ws kubia")


@pytest.mark.usefixtures("table")
def test_websites_are_applied_got_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", stdin=SITE) == f"{KIND}/kubia created\n"
    assert kubectl("apply -f -", stdin=SITE) == f"{KIND}/kubia unchanged\n"
    assert kubectl("apply -f -", stdin=SITE.replace("luksa", "ann")) == f"{KIND}/kubia configured\n"
    header, row = kubectl("get ws").splitlines()
    assert header.split("  ")[0] == "NAME" and header.split() == ["NAME", "GIT", "REPO", "REPLICAS", "AGE"]
    assert row.split()[:3] == ["kubia", "https://github.com/ann/kubia-website-example.git", "1"]
    kubectl('patch ws kubia --type json -p \'[{"op": "replace", "path": "/spec/replicas", "value": 3}]\'')
    kubectl("label ws kubia tier=front")
    assert kubectl("get ws -l tier=front -o 'jsonpath={.items[*].spec.replicas}'") == "3"
    assert kubectl("apply --server-side --force-conflicts -f -", stdin=SITE) == f"{KIND}/kubia serverside-applied\n"
    assert kubectl("diff -f -", stdin=SITE) == ""
    assert kubectl("delete ws kubia") == f'{KIND} "kubia" deleted\n'
    assert "NotFound" in kubectl.failure("get ws kubia")


@pytest.mark.usefixtures("table")
def test_errors_are_reported_by_the_api_itself(kubectl: Kubectl) -> None:
    wrong = SITE.replace("https://github.com/luksa/kubia-website-example.git", "https://example.com/test.git")
    assert 'spec.gitRepo: Invalid value: "https://example.com/test.git": serve something real' in kubectl.failure(
        "apply -f -", stdin=wrong
    )
    unknown = kubectl.failure("create -f -", stdin=f"{SITE}  colour: red\n")
    assert "unknown field" in unknown and "colour" in unknown
    assert 'User "ann" cannot list' in kubectl.failure("get ws --as ann")


@pytest.mark.usefixtures("table")
def test_kubectl_explains_the_kind_in_both_ways(kubectl: Kubectl) -> None:
    def explained(command: str) -> bool:
        outcome = kubectl.outcome(command)
        return outcome.code == 0 and "The repository." in outcome.stdout

    # A real server reads OpenAPI some time after it has found the API.
    while not explained("explain ws.spec.gitRepo"):
        pass
    while not explained("explain ws.spec --output plaintext-openapiv2"):
        pass


def test_rows_that_others_write_are_seen_and_watched(kubectl: Kubectl, table: Path) -> None:
    kubectl("apply -f -", stdin=SITE)
    watch = kubectl.start("get ws --watch -o 'jsonpath={.metadata.name}={.spec.replicas}{\"\\n\"}'")
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "kubia=1\n"
        with sqlite3.connect(table) as shop:
            shop.execute(
                "INSERT INTO website VALUES (?, 'shop', 'https://example.com/shop.git', 2, NULL)", (kubectl.namespace,)
            )
        assert watch.stdout.readline() == "shop=2\n"
        kubectl('patch ws shop --type merge -p \'{"spec":{"replicas":5}}\'')
        assert watch.stdout.readline() == "shop=5\n"
    finally:
        watch.terminate()
        watch.wait()
    with sqlite3.connect(table) as shop:
        assert shop.execute("SELECT servers FROM website WHERE site = 'shop'").fetchone() == (5,)


@pytest.mark.usefixtures("table", "only_pinnace")
def test_a_namespace_takes_its_websites_along(kubectl: Kubectl, table: Path) -> None:
    kubectl("create namespace passing")
    kubectl("apply --namespace passing -f -", stdin=SITE)
    kubectl("delete namespace passing --timeout=120s")
    with sqlite3.connect(table) as shop:
        assert shop.execute("SELECT count(*) FROM website").fetchone() == (0,)


@pytest.mark.usefixtures("table")
def test_pages_patches_and_appliers_of_an_own_api(kubectl: Kubectl) -> None:
    for number in range(3):
        kubectl("apply -f -", stdin=SITE.replace("name: kubia", f"name: kubia-{number}"))
    paged = kubectl("get ws --chunk-size=1 -o name").split()
    assert paged == [f"{KIND}/kubia-{number}" for number in range(3)]
    kubectl('patch ws kubia-0 --type merge -p \'{"spec":{"replicas":2}}\'')
    kubectl('patch ws kubia-0 --type json -p \'[{"op": "test", "path": "/spec/replicas", "value": 2}]\'')
    strategic = kubectl.failure('patch ws kubia-0 --type strategic -p \'{"spec":{"replicas":2}}\'')
    assert "strategic" in strategic or "UnsupportedMediaType" in strategic or "unsupported" in strategic
    other = SITE.replace("kubia", "kubia-0", 1).replace("luksa", "bob")
    taken = kubectl.failure("apply --server-side --field-manager ann -f -", stdin=other)
    assert "conflict" in taken
    forced = "apply --server-side --force-conflicts --field-manager ann -f -"
    assert "serverside-applied" in kubectl(forced, stdin=other)
    assert "configured (server dry run)" in kubectl(
        "apply --dry-run=server -f -", stdin=SITE.replace("name: kubia", "name: kubia-1").replace("luksa", "ann")
    )
