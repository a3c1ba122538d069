"""/etc/hosts, /etc/hostname and /etc/resolv.conf of a pod, written by the agent unless the pod mounts its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinnace.model.typed_objects import Pod
from pinnace.node.agent.containers.pod_files import write_regular
from pinnace.node.agent.pod_fields import PodFields
from pinnace.node.errors import ConfigRefused
from pinnace.node.runtime.runtime import Mount

_DOMAIN = "cluster.local"
_LONGEST_LABEL, _LONGEST_NAME = 63, 64
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
    directory: Path, pod: Pod, facts: PodFields, mounts: Sequence[Mount], *, dns_address: str, is_read_only: bool
) -> list[Mount]:
    """Write the files and mount them before the pod's own mounts. Raise OSError.

    A pod may change its own, as in Kubernetes: the agent never reads them, and they count to the storage of the pod.
    With a read-only root they are read-only, too.
    """
    taken = {mount.container_path.rstrip("/") for mount in mounts}
    added = []
    contents = {
        "hosts": _hosts(pod, facts),
        "hostname": f"{host_name_of(pod, facts.field('spec.nodeName'))}\n",
        "resolv.conf": _resolv_conf(pod, dns_address),
    }
    for name, content in contents.items():
        if f"/etc/{name}" in taken or "/etc" in taken:
            continue
        path = write_regular(directory, name, content.encode(), 0o644)
        added.append(Mount(container_path=f"/etc/{name}", host_path=str(path), read_only=is_read_only))
    return [*added, *mounts]


def host_name_of(pod: Pod, node: str) -> str:
    """The name that the kernel shows to the containers of a pod on a node of this name. Raise ConfigRefused.

    A pod in the network of the node has the node's name, whatever else it states.
    """
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return _shorten(node)
    name, domain = _names_of(pod)
    if not spec.get("setHostnameAsFQDN") or not domain:
        return name
    full = f"{name}.{domain}"
    if len(full) > _LONGEST_NAME:
        raise ConfigRefused(
            "Failed to construct FQDN from pod hostname and cluster domain, "
            f"FQDN {full} is too long ({_LONGEST_NAME} is the max, {len(full)} characters requested)"
        )
    return full


def _names_of(pod: Pod) -> tuple[str, str]:
    """The host name of a pod and its domain, which is empty for a pod without a subdomain."""
    spec = pod["spec"]
    override = spec.get("hostnameOverride")
    if override:
        return _shorten(override), ""
    domain = f"{spec['subdomain']}.{pod['metadata']['namespace']}.svc.{_DOMAIN}" if spec.get("subdomain") else ""
    return _shorten(spec.get("hostname") or pod["metadata"]["name"]), domain


def _shorten(name: str) -> str:
    return name[:_LONGEST_LABEL].rstrip("-.")


def _hosts(pod: Pod, facts: PodFields) -> str:
    text = _LOOPBACK
    if pod["spec"].get("hostNetwork"):
        return _HOST_NETWORK + _machine_hosts() + _aliases(pod)
    name, domain = _names_of(pod)
    for address in filter(None, facts.field("status.podIPs").split(",")):
        full = f"{name}.{domain}\t" if domain else ""
        text += f"{address}\t{full}{name}\n"
    return text + _aliases(pod)


def _machine_hosts() -> str:
    try:
        return Path("/etc/hosts").read_text()
    except OSError:
        return ""


def _aliases(pod: Pod) -> str:
    aliases = pod["spec"].get("hostAliases") or ()
    lines = "".join(f"{alias['ip']}\t" + "\t".join(alias.get("hostnames") or ()) + "\n" for alias in aliases)
    return f"\n# Entries added by HostAliases.\n{lines}" if lines else ""


def _resolv_conf(pod: Pod, dns_address: str) -> str:
    """The cluster's DNS server and search domains, unless the policy says otherwise; then the pod's own configuration.

    The resolver of this machine is never used: it cannot be reached from the network of the pods.
    """
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    config = spec.get("dnsConfig") or {}
    policy = spec.get("dnsPolicy", "ClusterFirst")
    servers = list(config.get("nameservers") or ())
    searches = list(config.get("searches") or ())
    options = {option["name"]: option.get("value") for option in config.get("options") or ()}
    if policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork")):
        servers = [dns_address, *servers]
        searches = [f"{namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN, *searches]
        options = {"ndots": "5", **options}
    lines = [f"search {' '.join(dict.fromkeys(searches))}"] if searches else []
    lines += [f"nameserver {server}" for server in dict.fromkeys(servers)]
    written = [f"{name}:{value}" if value else name for name, value in options.items()]
    lines += [f"options {' '.join(written)}"] if written else []
    return "\n".join(lines) + "\n"
