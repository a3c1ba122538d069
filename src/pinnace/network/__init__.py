"""Service addresses and names: the proxy and the DNS server."""
