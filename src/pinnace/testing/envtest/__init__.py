"""Programs named kube-apiserver, etcd and kubectl, for test suites that start these binaries themselves."""
