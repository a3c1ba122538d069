"""`pinnace check`: what a Kubernetes server would say of the manifests in files, without one."""
