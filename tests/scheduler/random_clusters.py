"""Random clusters and pods, rich in scheduling features, from a seed: the questions that were put to kube-scheduler."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from pinnace.model.objects import Object

ZONES = ("za", "zb", "zc")
ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
NAMESPACES = ("default", "team-a", "team-b")
APPS = ("web", "db", "cache")
IMAGES = ("registry.example/web:1", "registry.example/db:2", "registry.example/batch:3", "registry.example/tiny:4")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

T = TypeVar("T")


class Draw:
    """One cluster in the making: its random numbers, its nodes and the other objects."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.objects: list[Object] = []
        self.nodes: list[Object] = []
        self.claims: list[str] = []
        self.resource_claims: list[str] = []
        self.serial = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, values: Sequence[T]) -> T:
        return values[int(self.random.random() * len(values))]

    def between(self, low: int, high: int) -> int:
        return low + int(self.random.random() * (high - low + 1))

    def some(self, values: Sequence[T], least: int = 1) -> list[T]:
        """Return at least `least` of the values, in their order."""
        chosen = [value for value in values if self.chance(0.5)]
        return chosen if len(chosen) >= least else list(values[:least])

    def name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def add(self, api_version: str, kind: str, metadata: Object, **fields: object) -> None:
        self.objects.append({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})


# Nodes


def make_nodes(draw: Draw, *, small: bool) -> None:
    cpu = ("2", "2500m", "3", "3500m") if small else ("4", "8", "16", "7500m", "2")
    memory = ("3Gi", "4Gi", "3900Mi", "6Gi") if small else ("8Gi", "16Gi", "32Gi", "15900Mi", "4Gi")
    keep_zone = draw.chance(0.85)
    for index in range(draw.between(2, 9)):
        name = f"n{index}"
        labels = {HOSTNAME: name, "disk": draw.pick(("ssd", "hdd")), "rank": str(draw.between(1, 9))}
        if draw.chance(0.95 if keep_zone else 0.6):
            labels[ZONE] = draw.pick(ZONES)
            labels[REGION] = "r1" if labels[ZONE] != "zc" else "r2"
        if draw.chance(0.3):
            labels["gpu"] = draw.pick(("", "a100"))
        allocatable = {
            "cpu": draw.pick(cpu),
            "memory": draw.pick(memory),
            "ephemeral-storage": draw.pick(("10Gi", "50Gi")),
            "pods": draw.pick(("110", "110", "110", "9" if small else "20", "7" if small else "12")),
        }
        if draw.chance(0.3):
            allocatable["example.com/dongle"] = str(draw.between(1, 4))
        if draw.chance(0.2):
            allocatable["hugepages-2Mi"] = draw.pick(("64Mi", "256Mi"))
        spec: Object = {}
        if draw.chance(0.05):
            spec["unschedulable"] = True
        status: Object = {"allocatable": allocatable, "capacity": dict(allocatable)}
        draw.nodes.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels, "uid": f"node-{name}"},
                "spec": spec,
                "status": status,
            }
        )
    draw.objects.extend(draw.nodes)


def taint_nodes(draw: Draw) -> None:
    for node in draw.nodes:
        taints = []
        for key in ("dedicated", "maintenance", "load"):
            if draw.chance(0.3):
                value = draw.pick(("", "db", "7", "12")) if key != "load" else str(draw.between(1, 20))
                taint = {"key": key, "effect": draw.pick(EFFECTS)}
                taints.append(taint | ({"value": value} if value else {}))
        if node["spec"].get("unschedulable") and draw.chance(0.7):
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if taints:
            node["spec"]["taints"] = taints


def give_images(draw: Draw) -> None:
    for node in draw.nodes:
        images = []
        for image in IMAGES:
            if draw.chance(0.5):
                size = (
                    {"web": 300, "db": 900, "batch": 2400, "tiny": 9}[image.split("/")[1].split(":")[0]] * 1024 * 1024
                )
                images.append(
                    {
                        "names": [image, image.split(":")[0] + "@sha256:" + "0" * 8],
                        "sizeBytes": size + draw.between(0, 5) * 1000,
                    }
                )
        node["status"]["images"] = images


# Pods


def quantity_of_cpu(draw: Draw) -> str:
    return draw.pick(("50m", "100m", "250m", "500m", "1", "1500m", "0.3", "2"))


def quantity_of_memory(draw: Draw) -> str:
    return draw.pick(("64Mi", "128Mi", "256M", "512Mi", "1Gi", "2Gi", "1500Mi", "100e6"))


def requests_of(draw: Draw) -> Object:
    requests: Object = {}
    if draw.chance(0.85):
        requests["cpu"] = quantity_of_cpu(draw)
    if draw.chance(0.8):
        requests["memory"] = quantity_of_memory(draw)
    if draw.chance(0.08):
        requests["ephemeral-storage"] = draw.pick(("1Gi", "20Gi"))
    return {"requests": requests} if requests else {}


def make_pod(draw: Draw, prefix: str) -> Object:
    """Return a pod with labels, resources and priority, and nothing else."""
    name = draw.name(prefix)
    app = draw.pick(APPS)
    container: Object = {"name": "main", "image": draw.pick(IMAGES), "resources": requests_of(draw)}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": draw.pick(NAMESPACES) if draw.chance(0.4) else "default",
            "uid": f"uid-{name}",
            "labels": {"app": app, "rev": draw.pick(("1", "2"))},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [container], "priority": 0, "schedulerName": "default-scheduler"},
        "status": {"phase": "Pending"},
    }
    if draw.chance(0.1):
        pod["metadata"]["labels"].pop("app")
    return pod


def bind(draw: Draw, pod: Object) -> None:
    node = draw.pick(draw.nodes)
    pod["spec"]["nodeName"] = node["metadata"]["name"]
    start = f"2026-01-{draw.between(1, 28):02d}T{draw.between(0, 23):02d}:00:00Z"
    pod["status"] = {"phase": "Running", "startTime": start}


def add_more_containers(draw: Draw, pod: Object) -> None:
    spec = pod["spec"]
    if draw.chance(0.5):
        spec["containers"].append({"name": "side", "image": draw.pick(IMAGES), "resources": requests_of(draw)})
    inits = []
    for index in range(draw.between(0, 3)):
        init: Object = {"name": f"init{index}", "image": draw.pick(IMAGES), "resources": requests_of(draw)}
        if draw.chance(0.4):
            init["restartPolicy"] = "Always"
        inits.append(init)
    if inits:
        spec["initContainers"] = inits
    if draw.chance(0.3):
        spec["overhead"] = {"cpu": "120m", "memory": "50Mi"}
    if draw.chance(0.2):
        spec["resources"] = {"requests": {"cpu": "2", "memory": "2Gi"}}


def ask_for_extended_resources(draw: Draw, pod: Object) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    if draw.chance(0.6):
        amount = {"example.com/dongle": str(draw.between(1, 3))}
        resources.setdefault("requests", {}).update(amount)
        resources.setdefault("limits", {}).update(amount)
    elif draw.chance(0.5):
        amount = {"hugepages-2Mi": draw.pick(("32Mi", "128Mi"))}
        resources.setdefault("requests", {}).update(amount)
        resources.setdefault("limits", {}).update(amount)


def tolerate(draw: Draw, pod: Object) -> None:
    tolerations: list[Object] = []
    for key in draw.some(("dedicated", "maintenance", "load", "node.kubernetes.io/unschedulable")):
        toleration: Object = {"key": key}
        if draw.chance(0.4):
            toleration["operator"] = "Exists"
        else:
            value = draw.pick(("db", "7", "12", ""))
            toleration |= ({"operator": "Equal"} if draw.chance(0.5) else {}) | ({"value": value} if value else {})
        if draw.chance(0.6):
            toleration["effect"] = draw.pick(EFFECTS)
        tolerations.append(toleration)
    if draw.chance(0.1):
        tolerations.append({"operator": "Exists"} | ({"effect": "NoSchedule"} if draw.chance(0.5) else {}))
    if draw.chance(0.05):
        tolerations.append({"key": "load", "operator": draw.pick(("Lt", "Gt")), "value": "10"})
    pod["spec"]["tolerations"] = tolerations


def expression(draw: Draw) -> Object:
    match draw.between(0, 5):
        case 0:
            return {"key": "disk", "operator": "In", "values": draw.some(("ssd", "hdd"))}
        case 1:
            return {"key": ZONE, "operator": "NotIn", "values": draw.some(ZONES)[:2]}
        case 2:
            return {"key": "gpu", "operator": "Exists"}
        case 3:
            return {"key": "gpu", "operator": "DoesNotExist"}
        case 4:
            return {"key": "rank", "operator": draw.pick(("Gt", "Lt")), "values": [draw.pick(("2", "5", "7"))]}
        case _:
            return {"key": ZONE, "operator": "In", "values": draw.some(ZONES)}


def node_term(draw: Draw) -> Object:
    term: Object = {}
    if draw.chance(0.85):
        term["matchExpressions"] = [expression(draw) for _ in range(draw.between(1, 2))]
    if not term or draw.chance(0.1):
        names = [draw.pick(("n0", "n1", "n2", "n5", "missing"))]
        term["matchFields"] = [{"key": "metadata.name", "operator": draw.pick(("In", "In", "NotIn")), "values": names}]
    return term if draw.chance(0.97) else {}


def want_nodes(draw: Draw, pod: Object) -> None:
    affinity: Object = {}
    if draw.chance(0.6):
        terms = [node_term(draw) for _ in range(draw.between(1, 2))]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if draw.chance(0.6):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.between(1, 100), "preference": node_term(draw)} for _ in range(draw.between(1, 3))
        ]
    if affinity:
        pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity
    if draw.chance(0.25):
        pod["spec"]["nodeSelector"] = {"disk": draw.pick(("ssd", "hdd"))}


def take_ports(draw: Draw, pod: Object) -> None:
    ports = []
    for _ in range(draw.between(1, 2)):
        port = draw.pick((80, 443, 8080))
        entry: Object = {"containerPort": port, "protocol": draw.pick(("TCP", "TCP", "UDP"))}
        if draw.chance(0.8):
            entry["hostPort"] = port
        if draw.chance(0.3):
            entry["hostIP"] = draw.pick(("127.0.0.1", "0.0.0.0", "192.0.2.7"))
        ports.append(entry)
    pod["spec"]["containers"][0]["ports"] = ports


# Relations between pods


def label_selector(draw: Draw, pod: Object) -> Object | None:
    own = pod["metadata"]["labels"]
    match draw.between(0, 9):
        case 0:
            return None
        case 1:
            return {}
        case 2 | 3:
            return {
                "matchExpressions": [{"key": "app", "operator": draw.pick(("In", "NotIn")), "values": draw.some(APPS)}]
            }
        case 4:
            return {"matchExpressions": [{"key": "app", "operator": draw.pick(("Exists", "DoesNotExist"))}]}
        case 5 | 6:
            return {"matchLabels": {"app": draw.pick(APPS)}}
        case _:
            return {"matchLabels": {"app": own.get("app", "web")}}


def spread(draw: Draw, pod: Object) -> None:
    constraints: list[Object] = []
    for key in draw.some((ZONE, HOSTNAME, "disk")):
        constraint: Object = {
            "maxSkew": draw.pick((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": draw.pick(("DoNotSchedule", "ScheduleAnyway")),
        }
        selector = label_selector(draw, pod)
        if selector is not None:
            constraint["labelSelector"] = selector
            if draw.chance(0.2):
                constraint["matchLabelKeys"] = ["rev"]
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw.chance(0.25):
            constraint["minDomains"] = draw.between(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draw.chance(0.25):
                constraint[policy] = draw.pick(("Honor", "Ignore"))
        constraints.append(constraint)
    pod["spec"]["topologySpreadConstraints"] = constraints


def pod_term(draw: Draw, pod: Object) -> Object:
    term: Object = {"topologyKey": draw.pick((ZONE, ZONE, HOSTNAME, REGION, "disk"))}
    selector = label_selector(draw, pod)
    if selector is not None:
        term["labelSelector"] = selector
        if draw.chance(0.15) and "app" in pod["metadata"]["labels"]:
            merge_label_keys(draw, pod, term)
    if draw.chance(0.2):
        term["namespaces"] = draw.some(NAMESPACES)
    if draw.chance(0.2):
        term["namespaceSelector"] = draw.pick(({}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "none"}}))
    return term


def merge_label_keys(draw: Draw, pod: Object, term: Object) -> None:
    """Add matchLabelKeys as the API server stores them: merged into the selector."""
    field, operator = draw.pick((("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")))
    term[field] = ["rev"]
    selector = dict(term["labelSelector"])
    added = {"key": "rev", "operator": operator, "values": [pod["metadata"]["labels"]["rev"]]}
    selector["matchExpressions"] = [*selector.get("matchExpressions", []), added]
    term["labelSelector"] = selector


def relate(draw: Draw, pod: Object) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    for kind, required in (("podAffinity", 0.35), ("podAntiAffinity", 0.4)):
        terms: Object = {}
        if draw.chance(required):
            terms["requiredDuringSchedulingIgnoredDuringExecution"] = [
                pod_term(draw, pod) for _ in range(draw.between(1, 2))
            ]
        if draw.chance(0.4):
            terms["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.between(1, 100), "podAffinityTerm": pod_term(draw, pod)}
                for _ in range(draw.between(1, 2))
            ]
        if terms:
            affinity[kind] = terms
    if not affinity:
        pod["spec"].pop("affinity")


def add_owners(draw: Draw) -> None:
    """Add Services, ReplicaSets and StatefulSets whose selectors give pods default spreading."""
    for app in draw.some(APPS):
        selector = {"app": app}
        namespace = draw.pick(NAMESPACES)
        match draw.between(0, 3):
            case 0:
                draw.add(
                    "v1",
                    "ReplicationController",
                    {"name": f"rc-{app}", "namespace": namespace},
                    spec={"selector": selector},
                )
            case 1:
                draw.add(
                    "apps/v1",
                    "ReplicaSet",
                    {"name": f"rs-{app}", "namespace": namespace},
                    spec={"selector": {"matchLabels": selector}},
                )
            case 2:
                spec = {"selector": {"matchLabels": selector}, "serviceName": app}
                draw.add("apps/v1", "StatefulSet", {"name": f"set-{app}", "namespace": namespace}, spec=spec)
            case _:
                draw.add("v1", "Service", {"name": f"svc-{app}", "namespace": "default"}, spec={"selector": selector})


def own(draw: Draw, pod: Object) -> None:
    app = pod["metadata"]["labels"].get("app")
    for obj in draw.objects:
        matches = obj["metadata"].get("namespace") == pod["metadata"]["namespace"] and obj["metadata"]["name"].endswith(
            f"-{app}"
        )
        if matches and obj["kind"] != "Service":
            pod["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": obj["apiVersion"],
                    "kind": obj["kind"],
                    "name": obj["metadata"]["name"],
                    "uid": "u",
                    "controller": True,
                }
            ]


# Priorities


def rank(draw: Draw, pod: Object) -> None:
    is_new = "nodeName" not in pod["spec"]
    pod["spec"]["priority"] = draw.pick((0, 10, 100, 1000, 1000) if is_new else (0, 0, 10, 100, 1000))
    if draw.chance(0.1):
        pod["spec"]["preemptionPolicy"] = draw.pick(("Never", "PreemptLowerPriority"))


def add_budgets(draw: Draw) -> None:
    for app in draw.some(APPS):
        draw.add(
            "policy/v1",
            "PodDisruptionBudget",
            {"name": f"budget-{app}", "namespace": draw.pick(("default", "default", "team-a"))},
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
            status={
                "disruptionsAllowed": draw.pick((0, 0, 1, 2)),
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
            },
        )


def fill(draw: Draw, pod: Object) -> None:
    """Take a good part of a node."""
    requests = pod["spec"]["containers"][0]["resources"].setdefault("requests", {})
    requests["cpu"] = draw.pick(("250m", "400m", "600m", "1"))
    requests["memory"] = draw.pick(("256Mi", "512Mi", "900Mi"))


def grow(draw: Draw, pod: Object) -> None:
    """Ask for much of a node, so that only preemption can make room."""
    requests = pod["spec"]["containers"][0]["resources"].setdefault("requests", {})
    requests["cpu"] = draw.pick(("600m", "900m", "1300m", "1800m"))
    requests["memory"] = draw.pick(("512Mi", "1Gi", "1800Mi"))
