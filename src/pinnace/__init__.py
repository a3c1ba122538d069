"""An extensible Kubernetes control plane that installs with pip, and the SDK to extend it.

Three packages are public: `pinnace.sdk`, `pinnace.client` and `pinnace.testing`. The others may change in any release.
"""

__all__ = ["__version__", "client", "sdk", "testing"]
__version__ = "0.1.0"
