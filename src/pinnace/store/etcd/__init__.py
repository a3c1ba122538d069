"""The store in etcd, for several servers on several machines."""
