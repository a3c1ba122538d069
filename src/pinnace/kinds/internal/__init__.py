"""internal.apiserver.k8s.io: StorageVersions."""
