"""networking.k8s.io: Ingresses, NetworkPolicies, ServiceCIDRs, IPAddresses."""
