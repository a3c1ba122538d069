"""/etc/hosts, /etc/hostname and /etc/resolv.conf of a pod, written by the agent unless the pod mounts its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinnace.model.objects import Object
from pinnace.node.agent.variables import PodFields
from pinnace.node.runtime.runtime import Mount

_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_LOOPBACK = """# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


def add_etc_files(
    directory: Path, pod: Object, facts: PodFields, mounts: Sequence[Mount], *, dns_address: str
) -> list[Mount]:
    """Write the files and mount them before the pod's own mounts."""
    directory.mkdir(parents=True, exist_ok=True)
    taken = {mount.container_path.rstrip("/") for mount in mounts}
    added = []
    contents = {
        "hosts": _hosts(pod, facts),
        "hostname": f"{_hostname(pod)}\n",
        "resolv.conf": _resolv_conf(pod, dns_address),
    }
    for name, content in contents.items():
        if f"/etc/{name}" in taken or "/etc" in taken:
            continue
        path = directory / name
        path.write_text(content)
        path.chmod(0o644)
        added.append(Mount(container_path=f"/etc/{name}", host_path=str(path)))
    return [*added, *mounts]


def _hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def _hosts(pod: Object, facts: PodFields) -> str:
    text = _LOOPBACK
    if pod["spec"].get("hostNetwork"):
        return _HOST_NETWORK + _machine_hosts() + _aliases(pod)
    name = _hostname(pod)
    for address in filter(None, facts.field("status.podIPs").split(",")):
        subdomain = pod["spec"].get("subdomain")
        full = f"{name}.{subdomain}.{pod['metadata']['namespace']}.svc.cluster.local\t" if subdomain else ""
        text += f"{address}\t{full}{name}\n"
    return text + _aliases(pod)


def _machine_hosts() -> str:
    try:
        return Path("/etc/hosts").read_text()
    except OSError:
        return ""


def _aliases(pod: Object) -> str:
    aliases = pod["spec"].get("hostAliases") or ()
    lines = "".join(f"{one['ip']}\t" + "\t".join(one.get("hostnames") or ()) + "\n" for one in aliases)
    return f"\n# Entries added by HostAliases.\n{lines}" if lines else ""


def _resolv_conf(pod: Object, dns_address: str) -> str:
    """The cluster's DNS server and search domains, unless the policy says otherwise; then the pod's own configuration.

    The resolver of this machine is never used: it cannot be reached from the network of the pods.
    """
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    config = spec.get("dnsConfig") or {}
    policy = spec.get("dnsPolicy", "ClusterFirst")
    servers = list(config.get("nameservers") or ())
    searches = list(config.get("searches") or ())
    options = {one["name"]: one.get("value") for one in config.get("options") or ()}
    if policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork")):
        servers = [dns_address, *servers]
        searches = [f"{namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local", *searches]
        options = {"ndots": "5", **options}
    lines = [f"search {' '.join(dict.fromkeys(searches))}"] if searches else []
    lines += [f"nameserver {one}" for one in dict.fromkeys(servers)]
    written = [f"{name}:{value}" if value else name for name, value in options.items()]
    lines += [f"options {' '.join(written)}"] if written else []
    return "\n".join(lines) + "\n"
