"""Admission plug-ins that Kubernetes has, but does not enable by itself."""
