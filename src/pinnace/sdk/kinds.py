"""The built-in kinds and their parts as types: `from pinnace.sdk.kinds import Deployment, PodSpec`.

An object stays a plain dict. A kind is named by its type: `client.get(Deployment, "web")`, `@operator.reconcile(Pod)`.
"""

from pinnace.model.typed_objects import __getattr__ as __getattr__
