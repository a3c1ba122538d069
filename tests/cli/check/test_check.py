"""`pinnace check` says of manifests what a server would say, at the line where it is written."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pinnace.cli.command_table import app

Check = Callable[..., Result]

DEPLOYMENT = """\
# The front end.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: nginx
        image: nginx
        ports:
        - containerPort: 80
        - containerPort: 81
"""
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  names: {kind: Site, plural: sites}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              low: {type: integer}
              high: {type: integer}
            x-kubernetes-validations:
            - {rule: self.low <= self.high, message: low is above high}
"""
POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit}
spec:
  policyName: limit
  paramRef: {name: limit, namespace: rules, parameterNotFoundAction: Deny}
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
  validations:
  - expression: object.spec.replicas <= int(params.data.most)
    messageExpression: "'at most ' + params.data.most + ' replicas'"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limit, namespace: rules}
data: {most: "2"}
---
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check a text, or several by the names of their files, with the options of the command."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | dict[str, str], *options: str) -> Result:
        files = {"web.yaml": text} if isinstance(text, str) else text
        for name, content in files.items():
            Path(name).write_text(content)
        return CliRunner().invoke(app, ["check", *files, *options])

    return run


def test_a_good_manifest_has_no_errors(check: Check) -> None:
    done = check(DEPLOYMENT)
    assert (done.exit_code, done.output) == (0, "1 object in 1 file, no errors\n")


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("replicas: 3", "replicas: -3", "7:3", "spec.replicas: Invalid value: -3: must be greater than or equal to 0"),
        ("replicas: 3", "replica: 3", "7:3", 'unknown field "spec.replica"'),
        ("Port: 81", "Port: 99999", "19:11", "containers[0].ports[1].containerPort: Invalid value: 99999"),
        ("Port: 81", 'Port: "81"', "19:11", "cannot unmarshal string into Go struct field"),
        ("image: nginx", "image: nginx\n        image: b", "17:1", 'key "image" already set in map'),
        ("name: web", "name: web\n  labels: {a: 1}", "6:12", "cannot unmarshal number into Go struct field"),
        ("labels: {app: web}", "labels: {app: x}", "12:7", "`selector` does not match template `labels`"),
        ("{app: web}", "{app: web", "10:11", "yaml: did not find expected"),
        ("apps/v1", "apps/v1beta1", "3:1", "no kind Deployment in apps/v1beta1: Kubernetes 1.37 has it in apps/v1"),
        ("Deployment", "Deploymnt", "3:1", "no kind Deploymnt in apps/v1: check its CRD too, or add it with --crds"),
        ("kind: Deployment\n", "", "1:1", "kind not set"),
    ],
    ids=lambda value: value if value[:1].isdigit() else "",
)
def test_a_finding_names_its_line(check: Check, old: str, new: str, place: str, message: str) -> None:
    done = check(DEPLOYMENT.replace(old, new, 1) if old != "labels: {app: web}" else DEPLOYMENT.replace(old, new))
    assert done.exit_code == 1
    line = next((line for line in done.output.splitlines() if message in line), done.output)
    assert line.startswith(f"web.yaml:{place}: error: "), done.output


def test_custom_resources_are_checked_by_their_definitions(check: Check) -> None:
    site = "apiVersion: example.com/v1\nkind: Site\nmetadata: {name: a}\nspec:\n  low: 3\n  high: 2\n  hgih: 4\n"
    done = check({"site.yaml": site, "crd.yaml": CRD})
    assert 'site.yaml:7:3: error: Site a: unknown field "spec.hgih"' in done.output
    done = check({"site.yaml": site.replace("  hgih: 4\n", "")}, "--crds", "crd.yaml")
    assert done.output.splitlines() == [
        "site.yaml:4:1: error: Site a: spec: Invalid value: low is above high",
        "1 object in 1 file, 1 error",
    ]


def test_policies_and_their_parameters_judge_the_other_objects(check: Check) -> None:
    done = check(POLICY + DEPLOYMENT)
    assert done.exit_code == 1
    assert "ValidatingAdmissionPolicy 'limit' with binding 'limit' denied request: at most 2 replicas" in done.output
    assert check(POLICY + DEPLOYMENT.replace("replicas: 3", "replicas: 2")).exit_code == 0


def test_the_labels_of_a_namespace_judge_its_pods(check: Check) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: strict}\n"
        "spec: {hostNetwork: true, priorityClassName: high, serviceAccountName: web, "
        "containers: [{name: a, image: b}]}\n---\n"
    )
    namespace = (
        "apiVersion: v1\nkind: Namespace\n"
        "metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: baseline}}\n"
    )
    assert check(pod).exit_code == 0
    assert 'violates PodSecurity "baseline:latest": host namespaces' in check(pod + namespace).output


def test_each_minor_has_its_own_versions(check: Check) -> None:
    budget = (
        "apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\n"
        "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
    )
    old = check(budget, "--kubernetes-version", "1.25")
    assert old.exit_code == 0
    assert "web.yaml:1:1: warning: " in old.output
    assert "unavailable in v1.26+" in old.output
    assert check(budget, "--kubernetes-version", "1.25", "--strict").exit_code == 1
    assert "Kubernetes 1.37 has it in autoscaling/v1, autoscaling/v2" in check(budget).output


def test_two_files_with_one_object_are_both_checked(check: Check) -> None:
    done = check({"a.yaml": CRD, "b.yaml": CRD.replace("integer", "integr", 1)})
    assert "a.yaml" not in done.output
    assert "b.yaml:19:21: error: CustomResourceDefinition sites.example.com: spec.versions[0].schema." in done.output
    assert done.output.endswith("2 objects in 2 files, 1 error\n")


def test_lists_and_files_of_programs_differ(check: Check) -> None:
    items = (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n  dat: {}\n"
    )
    done = check(items + "---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n")
    assert done.output.splitlines() == [
        'web.yaml:7:3: error: ConfigMap a: unknown field "dat"',
        "1 object in 1 file, 1 error, 1 skipped",
    ]


def test_reports_for_pipelines_name_the_same_findings(check: Check) -> None:
    bad = {"a,b.yaml": DEPLOYMENT.replace("replicas: 3", "replicas: -3")}
    assert "::error file=a%2Cb.yaml,line=7,col=3::Deployment web: spec.replicas: " in check(bad, "-o", "github").output
    report = json.loads(check(bad, "-o", "json").output)
    assert report["errors"] == 1
    assert report["findings"][0] | {"message": ""} == {
        "file": "a,b.yaml",
        "line": 7,
        "column": 3,
        "level": "error",
        "object": "Deployment web",
        "field": "spec.replicas",
        "message": "",
    }
    suite = ElementTree.fromstring(check({**bad, "c.yaml": DEPLOYMENT}, "-o", "junit").output)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [len(case) for case in suite] == [1, 0]


def test_text_of_a_manifest_cannot_forge_a_line(check: Check) -> None:
    done = check('apiVersion: v1\nkind: "A\\nB\\e[2J"\nmetadata: {name: a}\n')
    assert done.output.splitlines()[0].startswith("web.yaml:2:1: error: A\\nB\\x1b[2J a: no kind A\\nB\\x1b[2J in v1")


def test_deep_and_doubling_documents_are_refused(check: Check) -> None:
    bomb = "apiVersion: v1\nkind: ConfigMap\n" + "a0: &a0 [x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert "excessive aliasing" in check(bomb).output
    assert "exceeded max depth" in check("a: " + "[" * 20_000).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing: no such file or directory"),
        (["."], ".: expected files that end with .yaml, .yml, .json, found none"),
        (["empty.txt"], "empty.txt: expected Kubernetes objects, found none"),
        (["empty.txt", "-o", "xml"], "--output xml: choose from text, github, json, junit"),
        (["empty.txt", "--crds", "gone"], "gone: no such file or directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_arguments_end_with_code_2(words: list[str], message: str, check: Check) -> None:
    Path("empty.txt").write_text("")
    done = CliRunner().invoke(app, ["check", *words])
    assert (done.exit_code, done.stderr) == (2, f"pinnace: {message}\n")


def test_standard_input_is_a_file_of_its_own(check: Check) -> None:
    done = CliRunner().invoke(app, ["check", "-"], input=DEPLOYMENT.replace("replicas: 3", "replicas: -3"))
    assert done.output.startswith("STDIN:7:3: error: Deployment web: spec.replicas")
