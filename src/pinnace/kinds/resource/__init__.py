"""resource.k8s.io: ResourceClaims, DeviceClasses, ResourceSlices."""
