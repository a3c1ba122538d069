"""Service accounts, certificates and the root CA."""
