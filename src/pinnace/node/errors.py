"""The errors of a runtime and of its images. The type names the reason that kubelet reports in a pod's status.

RuntimeFailure
  NotThere                        the sandbox, container or image does not exist
  StartFailed                     RunContainerError / StartError: the command cannot be started
  ConfigRefused                   CreateContainerConfigError: this machine cannot do what the container asks for
    CreateFailed                  CreateContainerError: the container cannot be made from its configuration
  ImageFailure                    ErrImagePull
    InvalidImageName, ImageNeverPull, ImageInspectFailed, RegistryUnavailable
"""

from __future__ import annotations


class RuntimeFailure(Exception):
    """The runtime could not do what it was asked to do."""

    reason = "RuntimeError"
    """The reason in the waiting or terminated state of a container."""


class NotThere(RuntimeFailure):
    """There is no such sandbox, container or image."""

    reason = "NotFound"


class StartFailed(RuntimeFailure):
    """The process of a container could not be started. Kubelet reports exit code 128, or 127 for a missing command."""

    reason = "StartError"

    def __init__(self, message: str, *, exit_code: int = 128) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class SandboxFailed(RuntimeFailure):
    """The namespaces, the network or the supervisor of a pod could not be made."""

    reason = "FailedCreatePodSandBox"


class DevicesFailed(RuntimeFailure):
    """The devices that were allocated to a pod cannot be prepared."""

    reason = "FailedPrepareDynamicResources"


class ConfigRefused(RuntimeFailure):
    """The container asks for something that this machine or this user cannot give."""

    reason = "CreateContainerConfigError"


class CreateFailed(ConfigRefused):
    """The container cannot be made from its configuration, such as one with a seccomp profile that is missing."""

    reason = "CreateContainerError"


class ImageFailure(RuntimeFailure):
    """An image could not be pulled, read or unpacked."""

    reason = "ErrImagePull"

    def __init__(self, message: str, *, retry_seconds: float = 0.0) -> None:
        """`retry_seconds`: the time until the image may be pulled again."""
        super().__init__(message)
        self.retry_seconds = retry_seconds


class InvalidImageName(ImageFailure):
    """The name of an image cannot be parsed."""

    reason = "InvalidImageName"


class ImageNeverPull(ImageFailure):
    """The image is not present, and the pull policy is Never."""

    reason = "ErrImageNeverPull"


class ImagePullBackOff(ImageFailure):
    """An earlier pull failed; the next try has to wait."""

    reason = "ImagePullBackOff"


class ImageInspectFailed(ImageFailure):
    """The stored image is damaged."""

    reason = "ImageInspectError"


class RegistryUnavailable(ImageFailure):
    """The registry cannot be reached, or does not answer in time."""

    reason = "RegistryUnavailable"
