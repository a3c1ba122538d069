"""The interfaces of kubelet's plug-ins: their methods and messages, with the numbers of Kubernetes."""
