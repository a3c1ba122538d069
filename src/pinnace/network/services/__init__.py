"""Service addresses: which endpoints stand behind each, by nftables or by a proxy."""
