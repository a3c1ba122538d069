"""The cluster's certificate authority and certificate signing."""
