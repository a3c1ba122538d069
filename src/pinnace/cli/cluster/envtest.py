"""`pinnace envtest`: print a folder of programs for test suites that start kube-apiserver and etcd themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.data_directory import default_data_dir
from pinnace.cli.failure import fail
from pinnace.cli.flags.versions import KubernetesVersion, parse_minor
from pinnace.kinds.definitions import minors
from pinnace.testing.envtest.folder import write_folder


def envtest(
    kubernetes_version: KubernetesVersion = "",
    bin_dir: Annotated[
        Path | None,
        typer.Option(
            help="Write the programs to k8s/VERSION-OS-ARCHITECTURE in this directory, as setup-envtest does.",
            show_default="the data directory",
        ),
    ] = None,
) -> None:
    """Print a folder with programs named kube-apiserver, etcd and kubectl that pinnace serves.

    Test suites that use controller-runtime's envtest, or other tools that start these binaries, run unchanged:

    \b
      KUBEBUILDER_ASSETS=$(pinnace envtest) go test ./...
      KUBEBUILDER_ASSETS=$(pinnace envtest --kubernetes-version 1.31) go test ./...
      PINNACE_CONTROLLERS=1 KUBEBUILDER_ASSETS=$(pinnace envtest) go test ./...    with the built-in controllers

    kube-apiserver --help, in that folder, lists the supported flags.
    """
    minor = parse_minor(kubernetes_version)
    try:
        print(write_folder(bin_dir or default_data_dir() / "envtest", minor or minors()[-1]).absolute())
    except OSError as error:
        fail(f"the folder cannot be written: {error}; choose another with --bin-dir")
