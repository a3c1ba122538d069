"""storagemigration.k8s.io: StorageVersionMigrations."""
