"""Names of Services and pods: the DNS server of the cluster."""
