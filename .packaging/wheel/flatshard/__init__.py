"""Starts the programs of Flatshard that fit this machine. The wheel has each of them in several folders:

    v3, v4              for processors of x86-64-v3 (AVX2) and of x86-64-v4 (AVX-512)
    v3-mpi, v4-mpi      also for several ranks, if Open MPI is installed
    v3-cuda, v4-cuda    also for GPUs, if there is one and cuBLASLt, NCCL and Open MPI are installed

A process becomes the program, so signals, exit codes and output are the program's own. FLATSHARD_LEVEL=v3 in the environment
chooses the level of processors, which decides the last bits of a run: the same everywhere, on different machines.
"""

import os
import re
import sys
from pathlib import Path

PROGRAMS = ("train", "prepare", "generate", "evaluate", "report", "ckpt")
ON_GPUS = ("train", "generate", "evaluate")

# What a processor must have, as /proc/cpuinfo names it. The last level that fits is chosen.
FLAGS = {"v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe".split()}
FLAGS["v4"] = FLAGS["v3"] + "avx512f avx512bw avx512cd avx512dq avx512vl".split()

# The libraries that are packages of their own, and the folders where pip puts them, seen from this one. Programs look
# for them there, after LD_LIBRARY_PATH, and so does the launcher.
LIBRARIES = {
    "libmpi.so.40": ("../../..", "../../../../lib", "../lib"),  # also where Python is in lib64, or pip has a --target
    "libcublasLt.so.13": ("../nvidia/cu13/lib",),
    "libnccl.so.2": ("../nvidia/nccl/lib",),
}
NEEDED = {"cuda": list(LIBRARIES), "mpi": ["libmpi.so.40"], "": []}  # by kind of program, the most able first


class Refused(Exception):
    """No program fits. The message is one line."""


class Launcher:
    """Chooses programs. The folders and the environment are this machine's, or a test's."""

    def __init__(self, package=Path(__file__).parent, proc=Path("/proc"), dev=Path("/dev"), environment=os.environ):
        self.package = package
        self.environment = environment
        flags = re.search(r"^flags\s*:(.*)$", (proc / "cpuinfo").read_text(), re.MULTILINE)
        self.flags = set(flags.group(1).split()) if flags else set()
        self.has_gpu = any((dev / name).exists() for name in ("nvidiactl", "dxg"))

    def built_levels(self):
        return [level for level in FLAGS if any(self.package.glob(level + "*"))]

    def level(self):
        built = self.built_levels()
        wanted = self.environment.get("FLATSHARD_LEVEL")
        if wanted and wanted not in built:
            raise Refused(f"FLATSHARD_LEVEL is {wanted}, must be one of: {', '.join(built)}")
        candidates = [wanted] if wanted else built
        lacking = {level: [flag for flag in FLAGS[level] if flag not in self.flags] for level in candidates}
        fitting = [level for level in candidates if not lacking[level]]
        if not fitting:
            lowest = candidates[0]
            raise Refused(f"this processor lacks {', '.join(lacking[lowest])}, which programs for x86-64-{lowest} need; "
                          "build Flatshard from its source")
        return fitting[-1]

    def find(self, library):
        """The folder from which a program loads the library, or None."""
        named = self.environment.get("LD_LIBRARY_PATH", "").split(":")
        folders = [Path(folder) for folder in named if folder] + [self.package / folder for folder in LIBRARIES[library]]
        return next((folder.resolve() for folder in folders if (folder / library).exists()), None)

    def missing(self, kind):
        return [library for library in NEEDED[kind] if not self.find(library)]

    def choose(self, program):
        """The path of the program, and a line about what it cannot use here, or ""."""
        level = self.level()
        note = ""
        for kind in NEEDED:
            path = self.package / (f"{level}-{kind}" if kind else level) / program
            if kind == "cuda" and (program not in ON_GPUS or not self.has_gpu):
                continue
            if not path.exists():
                if kind == "cuda":
                    note = "the GPU is not used: this wheel was built without CUDA"
                continue
            if not self.missing(kind):
                return path, note
            if kind == "cuda":
                note = f"the GPU is not used without {', '.join(self.missing(kind))}: pip install 'flatshard[cuda]'"
        raise Refused(f"this wheel has no {program} for x86-64-{level}")

    def environment_of_program(self):
        """With the mpirun that belongs to the library, which --ranks starts."""
        environment = dict(self.environment)
        folder = self.find("libmpi.so.40")
        if folder and (folder.parent / "bin" / "mpirun").exists():
            environment["PATH"] = f"{folder.parent / 'bin'}:{environment.get('PATH', os.defpath)}"
        return environment

    def describe(self):
        """What the wheel has and which of it this machine uses, for --version."""
        built = self.built_levels()
        kinds = {name for level in built for name in ("mpi", "cuda") if (self.package / f"{level}-{name}").exists()}
        lines = ["programs  x86-64-" + ", x86-64-".join(built) + (", with CUDA" if "cuda" in kinds else ", without CUDA")]
        mpi = self.find("libmpi.so.40")
        lines.append(f"MPI       {mpi or 'no: one rank only; pip install ' + repr('flatshard[mpi]')}")
        path, note = self.choose("train")
        lines.append(f"train     {path}")
        return "\n".join(lines + ([note] if note else []))


def run(program, arguments):
    launcher = Launcher()
    path, note = launcher.choose(program)
    if note:
        print(f"{program}: {note}", file=sys.stderr, flush=True)
    os.execve(path, [str(path), *arguments], launcher.environment_of_program())


def main(program="", arguments=None):
    """Becomes the program: by default the one that the command is named after, such as flatshard-train."""
    program = program or Path(sys.argv[0]).name.replace("flatshard-", "")
    try:
        run(program, sys.argv[1:] if arguments is None else arguments)
    except (Refused, OSError) as error:
        sys.exit(f"{program}: {error}")
