"""An extensible Kubernetes control plane that installs with pip, and the SDK to extend it."""

__version__ = "0.1.0"
