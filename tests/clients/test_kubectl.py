"""kubectl, as people use it from day to day. A test is a scenario, since every command is a process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.clients.kubectl_command import Kubectl
from tests.clients.manifests import as_yaml, changed, config_map, deployment, pod


def test_objects_are_created_once_and_applied_often(kubectl: Kubectl) -> None:
    manifest = config_map("settings", colour="red")
    assert kubectl("create -f -", stdin=as_yaml(manifest)) == "configmap/settings created\n"
    again = kubectl.failure("create -f -", stdin=as_yaml(manifest))
    assert again.endswith(
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "settings" already exists'
    )

    web = deployment("web")
    assert kubectl("apply -f -", stdin=as_yaml(web)) == "deployment.apps/web created\n"
    assert kubectl("apply -f -", stdin=as_yaml(web)) == "deployment.apps/web unchanged\n"
    more = changed(web, "spec", "replicas", to=3)
    assert kubectl("apply -f -", stdin=as_yaml(more)) == "deployment.apps/web configured\n"
    assert kubectl("get deployment web -o jsonpath={.spec.replicas}") == "3"

    without_labels = {**more, "metadata": {"name": "web"}}
    kubectl("apply -f -", stdin=as_yaml(without_labels))
    assert kubectl("get deployment web -o jsonpath={.metadata.labels}") == ""
    last = json.loads(kubectl("apply view-last-applied deployment web -o json"))
    assert last["spec"]["replicas"] == 3


def test_server_side_apply_knows_who_owns_a_field(kubectl: Kubectl) -> None:
    red, blue = (as_yaml(config_map("settings", colour=colour)) for colour in ("red", "blue"))
    applied = "configmap/settings serverside-applied\n"
    assert kubectl("apply --server-side --field-manager=painter -f -", stdin=red) == applied
    assert kubectl("apply --server-side --field-manager=painter -f -", stdin=red) == applied

    conflict = kubectl.failure("apply --server-side --field-manager=rival -f -", stdin=blue)
    assert 'Apply failed with 1 conflict: conflict with "painter": .data.colour' in conflict
    assert "Please review the fields above--they currently have other managers." in conflict
    assert kubectl("get configmap settings -o jsonpath={.data.colour}") == "red"

    kubectl("apply --server-side --field-manager=rival --force-conflicts -f -", stdin=blue)
    settings = kubectl.json("get configmap settings --show-managed-fields")
    assert settings["data"] == {"colour": "blue"}
    owners = {entry["manager"]: entry for entry in settings["metadata"]["managedFields"]}
    assert owners["rival"]["operation"] == "Apply"
    assert "f:colour" in owners["rival"]["fieldsV1"]["f:data"]
    assert "f:data" not in owners.get("painter", {"fieldsV1": {}})["fieldsV1"]


def test_objects_are_shown_in_every_form(kubectl: Kubectl) -> None:
    kubectl(
        "create -f -",
        stdin=as_yaml(
            pod("one", tier="front"),
            pod("two", tier="back"),
            deployment("web", replicas=0),
            config_map("settings", a="1", b="2"),
        ),
    )
    plain = kubectl("get pods").splitlines()
    assert plain[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line.split()[:4] for line in plain[1:]] == [
        ["one", "0/1", "Pending", "0"],
        ["two", "0/1", "Pending", "0"],
    ]
    wide = kubectl("get pods -o wide").splitlines()[0]
    assert re.split(r"\s{2,}", wide) == [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES",
    ]  # fmt: skip
    assert kubectl("get pods -o name") == "pod/one\npod/two\n"
    listed = kubectl.json("get pods")
    assert (listed["kind"], listed["apiVersion"]) == ("List", "v1")
    assert [item["kind"] for item in listed["items"]] == ["Pod", "Pod"]
    assert yaml.safe_load(kubectl("get configmap settings -o yaml"))["data"] == {"a": "1", "b": "2"}
    assert kubectl("get pods -o jsonpath='{.items[*].spec.containers[0].image}'") == "nginx:1.27 nginx:1.27"
    columns = kubectl("get pods -o custom-columns=N:.metadata.name,L:.metadata.labels.tier").splitlines()
    assert [line.split() for line in columns] == [["N", "L"], ["one", "front"], ["two", "back"]]
    assert kubectl("get cm/settings pod/one -o name") == "configmap/settings\npod/one\n"
    assert kubectl("get pods --show-labels --no-headers").split()[5] == "tier=front"
    assert [
        line.split()[0] for line in kubectl("get pods --no-headers --sort-by=.metadata.labels.tier").splitlines()
    ] == [
        "two",
        "one",
    ]

    assert kubectl("get pods -l tier=back -o name") == "pod/two\n"
    assert kubectl("get pods -l 'tier in (front, side)' -o name") == "pod/one\n"
    assert kubectl("get pods -l '!tier' -o name") == ""
    assert kubectl("get pods --field-selector metadata.name!=one,status.phase=Pending -o name") == "pod/two\n"
    assert kubectl.failure("get pods --field-selector spec.colour=red").endswith(
        'field selector "spec.colour=red": field label not supported: spec.colour'
    )

    everything = kubectl("get all -o name").split()
    assert {"pod/one", "pod/two", "deployment.apps/web"} <= set(everything)
    assert kubectl.failure("get pod three") == 'Error from server (NotFound): pods "three" not found'
    assert kubectl.outcome("get pods --namespace nowhere").stderr == "No resources found in nowhere namespace.\n"
    assert 'the server doesn\'t have a resource type "gadgets"' in kubectl.failure("get gadgets")
    raw = json.loads(kubectl(f"get --raw /api/v1/namespaces/{kubectl.namespace}/pods?limit=1"))
    assert raw["kind"] == "PodList"
    assert raw["metadata"]["remainingItemCount"] == 1
    assert kubectl("get pods -o name --chunk-size=1") == "pod/one\npod/two\n"


def test_a_watch_shows_what_happens(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(config_map("settings", colour="red")))
    watch = kubectl.start("get configmaps settings --watch -o jsonpath='{.data.colour}{\"\\n\"}'")
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "red\n"
        kubectl('patch configmap settings --type=merge -p \'{"data":{"colour":"blue"}}\'')
        assert watch.stdout.readline() == "blue\n"
    finally:
        watch.terminate()
        watch.communicate()
    table = kubectl.start("get configmaps --watch --output-watch-events --field-selector metadata.name=settings")
    try:
        assert table.stdout is not None
        assert table.stdout.readline().split() == ["EVENT", "NAME", "DATA", "AGE"]
        assert table.stdout.readline().split()[:3] == ["ADDED", "settings", "1"]
        kubectl("delete configmap settings")
        assert table.stdout.readline().split()[:3] == ["DELETED", "settings", "1"]
    finally:
        table.terminate()
        table.communicate()


def test_objects_are_described_and_kinds_explained(kubectl: Kubectl) -> None:
    kubectl(
        "create -f -",
        stdin=as_yaml(pod("one", tier="front"), deployment("web", replicas=0), config_map("settings", a="1")),
    )
    described = kubectl("describe pod one")
    assert re.search(r"^Name: +one$", described, re.MULTILINE)
    assert re.search(r"^ +Image: +nginx:1.27$", described, re.MULTILINE)
    assert re.search(r"^QoS Class: +BestEffort$", described, re.MULTILINE)
    assert re.search(
        r"^Replicas: +0 desired \| 0 updated \| 0 total \| 0 available", kubectl("describe deploy web"), re.M
    )
    assert "a:\n----\n1\n" in kubectl("describe configmap settings")
    assert re.search(r"^Status: +Active$", kubectl(f"describe namespace {kubectl.namespace}"), re.MULTILINE)

    explained = kubectl("explain pod.spec.containers.image")
    assert re.search(r"^KIND: +Pod$", explained, re.MULTILINE)
    assert re.search(r"^FIELD: image <string>$", explained, re.MULTILINE)
    recursive = kubectl("explain deployment --recursive")
    assert re.search(r"^GROUP: +apps$", recursive, re.MULTILINE)
    assert re.search(r"^ +maxSurge\t<IntOrString>$", recursive, re.MULTILINE)
    assert "does not exist" in kubectl.failure("explain pod.spec.colour")


def test_objects_are_changed_in_every_way(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(deployment("web"), config_map("settings", a="1", b="2")))
    edited = kubectl("edit configmap settings", EDITOR="sed -i s/^..a:.*/\\ \\ a:\\ changed/")
    assert edited == "configmap/settings edited\n"
    kept = kubectl.outcome("edit configmap settings", EDITOR="true")
    assert "Edit cancelled, no changes made." in kept.stdout + kept.stderr

    sidecar = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}'
    assert kubectl(f"patch deployment web -p '{sidecar}'") == "deployment.apps/web patched\n"
    names = "-o jsonpath={.spec.template.spec.containers[*].name}"
    assert sorted(kubectl(f"get deployment web {names}").split()) == ["side", "web"]
    removal = '{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"side"}]}}}}'
    kubectl(f"patch deployment web --type=strategic -p '{removal}'")
    assert kubectl(f"get deployment web {names}") == "web"
    assert (
        kubectl(f"patch deployment web --type=strategic -p '{removal}'") == "deployment.apps/web patched (no change)\n"
    )
    kubectl('patch configmap settings --type=merge -p \'{"data":{"b":null,"c":"3"}}\'')
    steps = '[{"op":"test","path":"/data/c","value":"3"},{"op":"move","from":"/data/c","path":"/data/d"}]'
    kubectl(f"patch configmap settings --type=json -p '{steps}'")
    assert kubectl.json("get configmap settings")["data"] == {"a": "changed", "d": "3"}
    assert "the server rejected our request due to an error in our request" in kubectl.failure(
        f"patch configmap settings --type=json -p '{steps}'"
    )

    assert kubectl("label configmap settings tier=front") == "configmap/settings labeled\n"
    assert "already has a value (front), and --overwrite is false" in kubectl.failure("label cm settings tier=back")
    kubectl("label configmap settings tier=back --overwrite")
    kubectl("annotate configmap settings note='two words'")
    metadata = kubectl.json("get configmap settings")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"tier": "back"}, {"note": "two words"})
    assert kubectl("label configmap settings tier-") == "configmap/settings unlabeled\n"

    replacement = config_map("settings", only="this")
    assert kubectl("replace -f -", stdin=as_yaml(replacement)) == "configmap/settings replaced\n"
    assert kubectl.json("get configmap settings")["data"] == {"only": "this"}
    stale = changed(replacement, "metadata", "resourceVersion", to="1")
    assert "the object has been modified; please apply your changes to the latest version and try again" in (
        kubectl.failure("replace -f -", stdin=as_yaml(stale))
    )
    nameless = kubectl.failure(
        f"replace --raw /api/v1/namespaces/{kubectl.namespace}/configmaps/settings -f -", stdin="{}"
    )
    assert nameless.endswith("(settings based on URL) was undeterminable: name must be provided")
    before = kubectl("get configmap settings -o jsonpath={.metadata.uid}")
    kubectl("replace --force -f -", stdin=as_yaml(replacement))
    assert kubectl("get configmap settings -o jsonpath={.metadata.uid}") != before


def test_workloads_are_scaled_and_rolled_out(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(deployment("web")))
    assert kubectl("scale deployment web --replicas=2") == "deployment.apps/web scaled\n"
    assert "Expected replicas to be 1, was 2" in kubectl.failure("scale deploy web --current-replicas=1 --replicas=5")
    assert kubectl("set image deployment/web web=nginx:1.28") == "deployment.apps/web image updated\n"
    assert kubectl("get deployment web -o jsonpath={..image}") == "nginx:1.28"
    assert kubectl("set env deployment/web COLOUR=red") == "deployment.apps/web env updated\n"
    assert (
        kubectl("set resources deployment/web --limits=cpu=200m")
        == "deployment.apps/web resource requirements updated\n"
    )
    assert kubectl("rollout restart deployment web") == "deployment.apps/web restarted\n"
    assert kubectl("rollout pause deployment web") == "deployment.apps/web paused\n"
    assert kubectl("rollout resume deployment web") == "deployment.apps/web resumed\n"
    assert kubectl("rollout history deployment web").startswith("deployment.apps/web \n")
    assert kubectl("autoscale deployment web --min=1 --max=3") == (
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    )


def test_waiting_ends_when_the_condition_holds(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(pod("one"), config_map("settings", colour="red")))
    assert kubectl("wait pod one --for=jsonpath='{.status.phase}'=Pending --timeout=120s") == "pod/one condition met\n"
    waiting = kubectl.start("wait configmap settings --for=jsonpath='{.data.colour}'=blue --timeout=120s")
    kubectl('patch configmap settings --type=merge -p \'{"data":{"colour":"blue"}}\'')
    assert waiting.communicate()[0] == "configmap/settings condition met\n"
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl(f"patch pod one --subresource=status -p '{ready}'")
    kubectl("wait pod one --for=condition=Ready --timeout=120s")
    gone = kubectl.start("wait configmap settings --for=delete --timeout=120s")
    kubectl("delete configmap settings")
    assert gone.wait(20) == 0
    gone.communicate()
    assert "timed out waiting for the condition on pods/one" in kubectl.failure(
        "wait pod one --for=jsonpath='{.status.phase}'=Running --timeout=1s"
    )


def test_a_diff_tells_what_an_apply_would_change(kubectl: Kubectl) -> None:
    web = deployment("web")
    assert kubectl.outcome("diff -f -", stdin=as_yaml(web)).code == 1
    kubectl("apply -f -", stdin=as_yaml(web))
    same = kubectl.outcome("diff -f -", stdin=as_yaml(web))
    assert (same.code, same.stdout) == (0, "")
    other = kubectl.outcome("diff -f -", stdin=as_yaml(changed(web, "spec", "replicas", to=4)))
    assert other.code == 1
    assert re.search(r"^-  replicas: 1$", other.stdout, re.MULTILINE)
    assert re.search(r"^\+  replicas: 4$", other.stdout, re.MULTILINE)
    invalid = kubectl.outcome("diff -f -", stdin=as_yaml(changed(web, "spec", "replicas", to=-1)))
    assert invalid.code > 1
    assert kubectl.outcome("diff --server-side -f -", stdin=as_yaml(web)).code in (0, 1)


def test_objects_are_deleted_in_every_way(kubectl: Kubectl) -> None:
    names = ("one", "two", "three", "four", "five")
    labelled = [config_map(name, labels={"tier": "front"} if name == "three" else None) for name in names]
    kubectl("create -f -", stdin=as_yaml(*labelled, pod("one")))
    assert kubectl("delete configmap one").startswith('configmap "one" deleted')  # Newer ones add the namespace.
    assert kubectl("delete -f -", stdin=as_yaml(labelled[1])).startswith('configmap "two" deleted')
    assert kubectl("delete configmaps -l tier=front").startswith('configmap "three" deleted')
    assert kubectl("delete configmap one --ignore-not-found") == ""
    assert kubectl.failure("delete configmap one") == 'Error from server (NotFound): configmaps "one" not found'
    assert kubectl("delete configmap four --dry-run=server").endswith("(server dry run)\n")
    assert kubectl("get configmap four -o name") == "configmap/four\n"
    kubectl("delete configmaps --field-selector metadata.name=five")
    kubectl("delete configmaps --all")
    assert kubectl("get configmaps -o name --field-selector metadata.name!=kube-root-ca.crt") == ""
    forced = kubectl.outcome("delete pod one --grace-period=0 --force")
    assert forced.stdout.startswith('pod "one" force deleted')
    assert "Immediate deletion does not wait for confirmation" in forced.stderr
    assert kubectl("get pods -o name") == ""

    kept = changed(config_map("kept"), "metadata", "finalizers", to=["example.com/keep"])
    kubectl("create -f -", stdin=as_yaml(kept))
    kubectl("delete configmap kept --wait=false")
    assert kubectl("get configmap kept -o jsonpath={.metadata.deletionTimestamp}") != ""
    kubectl('patch configmap kept --type=merge -p \'{"metadata":{"finalizers":null}}\'')
    assert kubectl("get configmaps -o name --field-selector metadata.name=kept") == ""


def test_the_cluster_tells_what_it_is(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("api-resources --no-headers").splitlines()]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in lines
    assert ["namespaces", "ns", "v1", "false", "Namespace"] in lines
    names = kubectl("api-resources --namespaced=false --verbs=list,watch -o name").split()
    assert {"nodes", "clusterroles.rbac.authorization.k8s.io"} <= set(names)
    assert "pods" not in names
    versions = kubectl("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "networking.k8s.io/v1"} <= set(versions)
    assert versions == sorted(versions)
    assert "is running at" in kubectl("cluster-info")
    version = json.loads(kubectl("version -o json"))["serverVersion"]
    assert version["major"] == "1"
    assert re.match(r"v1\.\d+\.\d+", version["gitVersion"])
    assert kubectl("get --raw /readyz") == "ok"
    assert "[+]ping ok" in kubectl("get --raw /readyz?verbose")


def test_callers_can_ask_who_they_are_and_what_they_may_do(kubectl: Kubectl) -> None:
    assert kubectl("auth can-i create pods") == "yes\n"
    assert "*.*" in kubectl("auth can-i --list")
    who = kubectl.json("auth whoami")["status"]["userInfo"]
    assert "system:masters" in who["groups"]
    assert "system:authenticated" in who["groups"]


def test_events_are_shown_with_the_object_they_are_about(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(pod("one")))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one.1", "namespace": kubectl.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "one",
            "namespace": kubectl.namespace,
            "uid": kubectl("get pod one -o jsonpath={.metadata.uid}"),
        },
        "reason": "Pulled",
        "message": "image is there",
        "type": "Normal",
        "source": {"component": "kubelet"},
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 1,
    }
    kubectl("create -f -", stdin=as_yaml(event))
    assert kubectl("get events --no-headers --field-selector reason=Pulled").split()[1:4] == [
        "Normal",
        "Pulled",
        "pod/one",
    ]
    assert re.search(r"Normal +Pulled .* kubelet +image is there", kubectl("describe pod one"))
    assert re.search(r"Normal +Pulled +Pod/one +image is there", kubectl("events --for pod/one"))


BAD_MANIFESTS = {
    "an unknown field": (
        changed(deployment("web"), "spec", "colour", to="red"),
        'Error from server (BadRequest): error when creating "STDIN": Deployment in version "v1" cannot be handled as '
        'a Deployment: strict decoding error: unknown field "spec.colour"',
    ),
    "a number where a string belongs": (
        changed(config_map("settings"), "data", to={"a": 1}),
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as a '
        "ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    ),
    "a name in capitals": (
        config_map("Settings"),
        'The ConfigMap "Settings" is invalid: metadata.name: Invalid value: "Settings": a lowercase RFC 1123 '
        "subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    ),
    "too few replicas": (
        changed(deployment("web"), "spec", "replicas", to=-1),
        'The Deployment "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
    ),
    "two faults": (
        changed(changed(pod("one"), "spec", "restartPolicy", to="Sometimes"), "spec", "containers", 0, "image", to=""),
        'The Pod "one" is invalid: \n* spec.containers[0].image: Required value\n* spec.restartPolicy: Unsupported '
        'value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    "a kind that is not there": (
        {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "one"}},
        'error: resource mapping not found for name: "one" namespace: "" from "STDIN": no matches for kind "Gadget" in '
        'version "example.com/v1"\nensure CRDs are installed first',
    ),
    "another namespace": (
        changed(config_map("settings"), "metadata", "namespace", to="elsewhere"),
        'error: the namespace from the provided object "elsewhere" does not match the namespace "{namespace}". You '
        "must pass '--namespace=elsewhere' to perform this operation.",
    ),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_refused_in_the_words_of_kubernetes(kubectl: Kubectl, name: str) -> None:
    manifest, expected = BAD_MANIFESTS[name]
    assert kubectl.failure("create -f -", stdin=as_yaml(manifest)) == expected.replace("{namespace}", kubectl.namespace)


def test_validation_can_be_weaker(kubectl: Kubectl) -> None:
    manifest = as_yaml(changed(config_map("settings"), "colour", to="red"))
    warned = kubectl.outcome("apply --validate=warn -f -", stdin=manifest)
    assert (warned.stdout, warned.stderr) == ("configmap/settings created\n", 'Warning: unknown field "colour"\n')
    ignored = kubectl.outcome("apply --validate=ignore -f -", stdin=manifest)
    assert (ignored.code, ignored.stderr) == (0, "")


def test_a_dry_run_changes_nothing(kubectl: Kubectl) -> None:
    manifest = as_yaml(deployment("web"))
    assert kubectl("apply --dry-run=client -f -", stdin=manifest) == "deployment.apps/web created (dry run)\n"
    assert kubectl("apply --dry-run=server -f -", stdin=manifest) == "deployment.apps/web created (server dry run)\n"
    completed = yaml.safe_load(kubectl("create --dry-run=server -o yaml -f -", stdin=manifest))
    assert completed["spec"]["strategy"]["type"] == "RollingUpdate"
    assert completed["metadata"]["uid"]
    assert kubectl("get deployments -o name") == ""


def test_a_kustomization_is_applied(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(as_yaml(deployment("web")))
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [deployment.yaml]\nnamePrefix: my-\nimages: [{name: nginx, newTag: '2'}]\n"
        "configMapGenerator: [{name: settings, literals: [a=1]}]\n"
    )
    applied = kubectl(f"apply -k {tmp_path}").splitlines()
    assert re.fullmatch(r"configmap/my-settings-\w+ created", applied[0])
    assert applied[1] == "deployment.apps/my-web created"
    assert kubectl("get deployment my-web -o jsonpath={..image}") == "nginx:2"
    kubectl(f"delete -k {tmp_path}")
    assert kubectl("get deployments -o name") == ""


def test_objects_that_kubectl_makes_itself_are_created(kubectl: Kubectl) -> None:
    assert kubectl("create configmap settings --from-literal=a=1") == "configmap/settings created\n"
    assert kubectl("create secret generic keys --from-literal=a=1") == "secret/keys created\n"
    assert kubectl("get secret keys -o jsonpath={.data.a}") == "MQ=="
    assert kubectl("create deployment web --image=nginx --replicas=2 --port=80") == "deployment.apps/web created\n"
    assert kubectl("expose deployment web --port=80") == "service/web exposed\n"
    assert kubectl("get service web -o jsonpath={.spec.clusterIP}").count(".") == 3
    assert kubectl("run one --image=nginx --env=A=1 --labels=a=b") == "pod/one created\n"
    assert kubectl("create job once --image=busybox -- true") == "job.batch/once created\n"
    assert kubectl("create cronjob often --image=busybox --schedule='*/5 * * * *'") == "cronjob.batch/often created\n"
    assert kubectl("create role reader --verb=get --resource=pods") == (
        "role.rbac.authorization.k8s.io/reader created\n"
    )
    assert kubectl("create rolebinding readers --role=reader --user=ann") == (
        "rolebinding.rbac.authorization.k8s.io/readers created\n"
    )
    assert kubectl("create serviceaccount robot") == "serviceaccount/robot created\n"
    assert kubectl("create ingress site --rule=example.com/*=web:80") == "ingress.networking.k8s.io/site created\n"
    assert kubectl("create quota limits --hard=pods=3") == "resourcequota/limits created\n"
    assert kubectl("create poddisruptionbudget calm --selector=app=web --min-available=1") == (
        "poddisruptionbudget.policy/calm created\n"
    )
    assert kubectl("create priorityclass calm-" + kubectl.namespace + " --value=5").endswith(" created\n")
    kubectl(f"delete priorityclass calm-{kubectl.namespace}")
    assert kubectl("get deployment web -o jsonpath={.spec.replicas}") == "2"


OLD_CRON_JOB = {
    "apiVersion": "batch/v1beta1",
    "kind": "CronJob",
    "metadata": {"name": "often"},
    "spec": {
        "schedule": "*/5 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}}},
    },
}
OLD_INGRESS = {
    "apiVersion": "extensions/v1beta1",
    "kind": "Ingress",
    "metadata": {"name": "site"},
    "spec": {
        "rules": [
            {
                "host": "example.com",
                "http": {"paths": [{"path": "/", "backend": {"serviceName": "web", "servicePort": 80}}]},
            }
        ]
    },
}


@pytest.mark.usefixtures("only_pinnace")
def test_versions_that_kubernetes_has_removed_are_accepted_with_a_warning(kubectl: Kubectl) -> None:
    cron = kubectl.outcome("apply -f -", stdin=as_yaml(OLD_CRON_JOB))
    assert cron.stdout == "cronjob.batch/often created\n"
    assert cron.stderr == (
        "Warning: batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob\n"
    )
    assert kubectl("get cronjobs.v1.batch often -o jsonpath={.apiVersion}") == "batch/v1"
    ingress = kubectl.outcome("apply -f -", stdin=as_yaml(OLD_INGRESS))
    assert ingress.stdout == "ingress.extensions/site created\n"
    assert ingress.stderr == (
        "Warning: extensions/v1beta1 Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 "
        "Ingress\n"
    )
    backend = kubectl("get ingress.networking.k8s.io site -o jsonpath={..backend}")
    assert json.loads(backend) == {"service": {"name": "web", "port": {"number": 80}}}
    assert kubectl("apply -f -", stdin=as_yaml(OLD_CRON_JOB)) == "cronjob.batch/often unchanged\n"
    assert kubectl("get ingress -o name") == "ingress.networking.k8s.io/site\n"
    explained = kubectl("explain ingress.spec.rules.http.paths.backend --api-version=extensions/v1beta1")
    assert "serviceName" in explained
