"""Distils the Kubernetes definitions when a wheel is built, so that users install neither 150 MB nor 16,000 files."""
