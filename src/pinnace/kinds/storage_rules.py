"""What is special about volumes, claims and storage classes."""

from pinnace.model.resources import Strategy

PERSISTENT_VOLUME = Strategy()
PERSISTENT_VOLUME_CLAIM = Strategy()
STORAGE_CLASS = Strategy()
VOLUME_ATTACHMENT = Strategy()
CSI_DRIVER = Strategy()
CSI_NODE = Strategy()
CSI_STORAGE_CAPACITY = Strategy()
VOLUME_ATTRIBUTES_CLASS = Strategy()
