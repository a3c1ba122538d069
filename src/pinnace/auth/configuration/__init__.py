"""Configuration files of authentication and authorization, as kube-apiserver reads them."""
