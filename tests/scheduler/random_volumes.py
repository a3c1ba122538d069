"""The volumes and devices of random clusters: storage classes, claims, CSI limits, devices for dynamic allocation."""

from tests.scheduler.random_clusters import HOSTNAME, REGION, ZONE, ZONES, Draw

from pinnace.model.objects import Object

DRIVER, CAPACITY_DRIVER = "csi.example.com", "capacity.example.com"
GPU_DRIVER = "gpu.example.com"
MODES = ("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")


def add_storage(draw: Draw) -> None:
    add_classes(draw)
    for node in draw.nodes:
        if draw.chance(0.85):
            drivers: list[Object] = [{"name": DRIVER, "nodeID": "x", "topologyKeys": [ZONE]}]
            if draw.chance(0.6):
                drivers[0]["allocatable"] = {"count": draw.between(1, 4)}
            drivers.append({"name": CAPACITY_DRIVER, "nodeID": "x", "topologyKeys": [ZONE]})
            draw.add("storage.k8s.io/v1", "CSINode", {"name": node["metadata"]["name"]}, spec={"drivers": drivers})
    for index in range(draw.between(2, 5)):
        add_bound_claim(draw, index)
    for index in range(draw.between(1, 3)):
        add_free_volume(draw, index)
    for index in range(draw.between(2, 6)):
        add_unbound_claim(draw, index)


def add_classes(draw: Draw) -> None:
    def add(name: str, provisioner: str, mode: str, **fields: object) -> None:
        draw.add(
            "storage.k8s.io/v1",
            "StorageClass",
            {"name": name},
            provisioner=provisioner,
            volumeBindingMode=mode,
            **fields,
        )

    wait = "WaitForFirstConsumer"
    add("immediate", DRIVER, "Immediate")
    add("wait", DRIVER, wait)
    add("static", "kubernetes.io/no-provisioner", wait)
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": draw.some(ZONES)}]}]
    add("zonal", DRIVER, wait, allowedTopologies=topologies)
    add("capacity", CAPACITY_DRIVER, wait)
    draw.add("storage.k8s.io/v1", "CSIDriver", {"name": DRIVER}, spec={"attachRequired": True})
    draw.add(
        "storage.k8s.io/v1",
        "CSIDriver",
        {"name": CAPACITY_DRIVER},
        spec={"storageCapacity": True, "attachRequired": False},
    )
    for zone in ZONES:
        if draw.chance(0.7):
            draw.add(
                "storage.k8s.io/v1",
                "CSIStorageCapacity",
                {"name": f"capacity-{zone}", "namespace": "default"},
                storageClassName="capacity",
                nodeTopology={"matchLabels": {ZONE: zone}},
                capacity=draw.pick(("1Gi", "5Gi", "100Gi")),
                **({"maximumVolumeSize": "3Gi"} if draw.chance(0.3) else {}),
            )


def make_volume(draw: Draw, name: str, **spec: object) -> Object:
    metadata: Object = {"name": name, "labels": {}}
    body: Object = {
        "capacity": {"storage": draw.pick(("1Gi", "2Gi", "10Gi"))},
        "csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"},
        "persistentVolumeReclaimPolicy": "Delete",
        "volumeMode": "Filesystem",
        **spec,
    }
    if draw.chance(0.35):
        metadata["labels"] = {ZONE: "__".join(draw.some(ZONES)[:2]), REGION: draw.pick(("r1", "r2"))}
    if draw.chance(0.5):
        key, values = draw.pick(((ZONE, draw.some(ZONES)), (HOSTNAME, [draw.pick(draw.nodes)["metadata"]["name"]])))
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {"metadata": metadata, "spec": body}


def add_bound_claim(draw: Draw, index: int) -> None:
    mode = draw.pick(MODES)
    claim, volume = f"bound{index}", f"pv-bound{index}"
    reference = {
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": claim,
        "uid": f"uid-{claim}",
        "apiVersion": "v1",
    }
    made = make_volume(draw, volume, accessModes=[mode], storageClassName="wait", claimRef=reference)
    draw.add("v1", "PersistentVolume", made["metadata"], spec=made["spec"], status={"phase": "Bound"})
    add_claim(draw, claim, mode, "wait", volume)


def add_free_volume(draw: Draw, index: int) -> None:
    made = make_volume(draw, f"pv-free{index}", accessModes=["ReadWriteOnce"], storageClassName="static")
    draw.add("v1", "PersistentVolume", made["metadata"], spec=made["spec"], status={"phase": "Available"})


def add_unbound_claim(draw: Draw, index: int) -> None:
    storage_class = draw.pick(("immediate", "wait", "static", "static", "zonal", "zonal", "capacity", "capacity"))
    add_claim(draw, f"claim{index}", "ReadWriteOnce", storage_class, "")


def add_claim(draw: Draw, name: str, mode: str, storage_class: str, volume: str) -> None:
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    spec: Object = {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": draw.pick(("1Gi", "2Gi", "8Gi"))}},
    }
    if volume:
        spec["volumeName"] = volume
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    if draw.chance(0.04):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        metadata["finalizers"] = ["kubernetes.io/pvc-protection"]
    draw.add("v1", "PersistentVolumeClaim", metadata, spec=spec, status={"phase": "Bound" if volume else "Pending"})
    draw.claims.append(name)


def mount(draw: Draw, pod: Object) -> None:
    pod["metadata"]["namespace"] = "default"
    bound = "nodeName" in pod["spec"]
    claims = [name for name in draw.claims if not bound or name.startswith("bound")]
    volumes: list[Object] = []
    for index in range(draw.between(1, 3)):
        volume: Object = {"name": f"v{index}"}
        if draw.chance(0.12):
            volume["gcePersistentDisk"] = {"pdName": draw.pick(("disk1", "disk2")), "readOnly": draw.chance(0.4)}
        elif draw.chance(0.08):
            volume["iscsi"] = {"targetPortal": "p", "iqn": "iqn1", "lun": 0, "readOnly": draw.chance(0.4)}
        elif draw.chance(0.04) and not bound:
            volume["persistentVolumeClaim"] = {"claimName": "missing"}
        elif draw.chance(0.04) and not bound:
            volume["ephemeral"] = {
                "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "wait"}}
            }
        else:
            volume["persistentVolumeClaim"] = {"claimName": draw.pick(claims)}
        if not any(
            volume.get("persistentVolumeClaim") and v.get("persistentVolumeClaim") == volume["persistentVolumeClaim"]
            for v in volumes
        ):
            volumes.append(volume)
    pod["spec"]["volumes"] = volumes


# Devices


def add_devices(draw: Draw) -> None:
    draw.add(
        "resource.k8s.io/v1",
        "DeviceClass",
        {"name": "gpu"},
        spec={"selectors": [cel(f'device.driver == "{GPU_DRIVER}"')]},
    )
    big = f'device.capacity["{GPU_DRIVER}"].memory.compareTo(quantity("20Gi")) >= 0'
    draw.add(
        "resource.k8s.io/v1",
        "DeviceClass",
        {"name": "big-gpu"},
        spec={"selectors": [cel(f'device.driver == "{GPU_DRIVER}"'), cel(big)]},
    )
    for node in draw.nodes:
        if draw.chance(0.75):
            name = node["metadata"]["name"]
            devices = [make_device(draw, index) for index in range(draw.between(1, 4))]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            draw.add(
                "resource.k8s.io/v1",
                "ResourceSlice",
                {"name": f"slice-{name}"},
                spec={"driver": GPU_DRIVER, "pool": pool, "nodeName": name, "devices": devices},
            )
    for index in range(draw.between(3, 6)):
        add_resource_claim(draw, index)


def cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def make_device(draw: Draw, index: int) -> Object:
    attributes = {"model": {"string": draw.pick(("a", "b"))}, "numa": {"int": draw.between(0, 1)}}
    device: Object = {
        "name": f"gpu{index}",
        "attributes": attributes,
        "capacity": {"memory": {"value": draw.pick(("10Gi", "20Gi", "40Gi"))}},
    }
    if draw.chance(0.1):
        device["taints"] = [{"key": "broken", "value": "yes", "effect": draw.pick(("NoSchedule", "NoExecute"))}]
    return device


def add_resource_claim(draw: Draw, index: int) -> None:
    name = f"devices{index}"
    devices: Object = {"requests": [make_request(draw, f"r{number}") for number in range(draw.between(1, 2))]}
    if draw.chance(0.3):
        devices["constraints"] = [{"matchAttribute": f"{GPU_DRIVER}/{draw.pick(('model', 'numa'))}"}]
    draw.add(
        "resource.k8s.io/v1",
        "ResourceClaim",
        {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        spec={"devices": devices},
    )
    slices = [obj["spec"] for obj in draw.objects if obj["kind"] == "ResourceSlice"]
    if slices and draw.chance(0.35):
        chosen = draw.pick(slices)
        results = [
            {
                "request": "r0",
                "driver": GPU_DRIVER,
                "pool": chosen["pool"]["name"],
                "device": draw.pick(chosen["devices"])["name"],
            }
        ]
        field = {"key": "metadata.name", "operator": "In", "values": [chosen["nodeName"]]}
        allocation = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        draw.objects[-1]["status"] = {"allocation": allocation}
        if draw.chance(0.3):
            draw.objects[-1]["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": "uid-other"}]
    draw.resource_claims.append(name)


def make_request(draw: Draw, name: str) -> Object:
    def exactly() -> Object:
        body: Object = {
            "deviceClassName": draw.pick(("gpu", "gpu", "big-gpu")),
            "allocationMode": "ExactCount",
            "count": draw.between(1, 2),
        }
        if draw.chance(0.3):
            body["selectors"] = [cel(f'device.attributes["{GPU_DRIVER}"].model == "{draw.pick(("a", "b"))}"')]
        if draw.chance(0.12):
            body["allocationMode"] = "All"
            body.pop("count")
        if draw.chance(0.15):
            body["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        return body

    if draw.chance(0.15):
        return {"name": name, "firstAvailable": [{"name": f"s{number}", **exactly()} for number in range(2)]}
    return {"name": name, "exactly": exactly()}


def claim_devices(draw: Draw, pod: Object) -> None:
    pod["metadata"]["namespace"] = "default"
    names = draw.some(draw.resource_claims)[:2]
    if draw.chance(0.04):
        names = ["missing"]
    pod["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": name} for name in names]
