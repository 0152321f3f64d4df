"""Tests of the launcher in the wheel, on folders that look like an installed wheel: `python3 launcher_test.py TREE VERSION`.
VERSION is that of the programs."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TREE, VERSION = Path(sys.argv[1]), sys.argv[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TREE / ".packaging/wheel"))
import flatshard  # noqa: E402

AVX2 = "fpu sse4_2 avx f16c bmi1 avx2 bmi2 fma movbe abm"
AVX512 = AVX2 + " avx512f avx512dq avx512cd avx512bw avx512vl"


def script(path, text="exit 0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class LauncherTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.lib = self.root / "venv/lib"
        self.site = self.lib / "python3.11/site-packages"
        for level in ("v3", "v4"):
            for kind in ("", "-mpi"):
                for program in flatshard.PROGRAMS:
                    script(self.site / "flatshard" / (level + kind) / program)

    def add_cuda(self):
        for level in ("v3", "v4"):
            for program in flatshard.ON_GPUS:
                script(self.site / "flatshard" / f"{level}-cuda" / program)

    def add(self, *libraries):
        for library in libraries:
            library.parent.mkdir(parents=True, exist_ok=True)
            library.touch()

    def install_mpi(self):
        self.add(self.lib / "libmpi.so.40")
        script(self.root / "venv/bin/mpirun")

    def install_cuda(self):
        self.add(self.site / "nvidia/cu13/lib/libcublasLt.so.13", self.site / "nvidia/nccl/lib/libnccl.so.2")

    def launcher(self, flags=AVX2, gpu=False, package=None, **environment):
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: avx512f\nflags\t\t: {flags}\n\n")
        if gpu:
            self.add(self.root / "dev/nvidiactl")
        return flatshard.Launcher(package or self.site / "flatshard", self.root / "proc", self.root / "dev",
                                  {"PATH": "/usr/bin", **environment})

    def chosen(self, program="train", **machine):
        path, note = self.launcher(**machine).choose(program)
        return str(path.relative_to(self.site / "flatshard")), note

    def test_the_processor_decides_the_level(self):
        self.assertEqual(self.chosen(), ("v3/train", ""))
        self.assertEqual(self.chosen(flags=AVX512), ("v4/train", ""))
        self.assertEqual(self.chosen(flags=AVX512.replace("avx512vl", "")), ("v3/train", ""))
        self.assertEqual(self.chosen(flags=AVX512, FLATSHARD_LEVEL="v3"), ("v3/train", ""))

    def test_a_processor_that_no_program_fits_is_refused_with_what_it_lacks(self):
        with self.assertRaisesRegex(flatshard.Refused, "lacks f16c, fma, which programs for x86-64-v3 need"):
            self.chosen(flags=AVX2.replace("fma", "").replace("f16c", ""))
        with self.assertRaisesRegex(flatshard.Refused, "lacks avx512f, .* x86-64-v4 need"):
            self.chosen(FLATSHARD_LEVEL="v4")
        with self.assertRaisesRegex(flatshard.Refused, "FLATSHARD_LEVEL is v5, must be one of: v3, v4"):
            self.chosen(FLATSHARD_LEVEL="v5")

    def test_programs_with_mpi_are_chosen_where_pip_installed_it_and_find_its_mpirun(self):
        self.assertEqual(self.launcher().environment_of_program()["PATH"], "/usr/bin")
        self.install_mpi()
        self.assertEqual(self.chosen(), ("v3-mpi/train", ""))
        self.assertEqual(self.launcher().environment_of_program()["PATH"], f"{self.root}/venv/bin:/usr/bin")

    def test_mpi_is_found_where_python_is_in_lib64_and_in_a_target_folder(self):
        self.install_mpi()
        site = self.root / "venv/lib64/python3.9/site-packages"
        site.parent.mkdir(parents=True)
        self.site.rename(site)
        self.assertEqual(self.launcher(package=site / "flatshard").find("libmpi.so.40"), self.lib)
        target = self.root / "target"
        site.rename(target)
        self.add(target / "lib/libmpi.so.40")
        self.assertEqual(self.launcher(package=target / "flatshard").find("libmpi.so.40"), target / "lib")

    def test_an_mpi_of_LD_LIBRARY_PATH_comes_first_as_it_does_for_the_loader(self):
        self.install_mpi()
        self.add(self.root / "module/lib/libmpi.so.40")
        script(self.root / "module/bin/mpirun")
        launcher = self.launcher(LD_LIBRARY_PATH=f":/nowhere:{self.root}/module/lib")
        self.assertEqual(launcher.find("libmpi.so.40"), self.root / "module/lib")
        self.assertEqual(launcher.environment_of_program()["PATH"], f"{self.root}/module/bin:/usr/bin")

    def test_a_gpu_is_used_if_its_libraries_are_there_or_a_line_says_why_not(self):
        self.assertEqual(self.chosen(gpu=True), ("v3/train", "the GPU is not used: this wheel was built without CUDA"))
        self.add_cuda()
        self.install_mpi()
        self.assertEqual(self.chosen(gpu=True), ("v3-mpi/train",
                         "the GPU is not used without libcublasLt.so.13, libnccl.so.2: pip install 'flatshard[cuda]'"))
        self.install_cuda()
        self.assertEqual(self.chosen(gpu=True), ("v3-cuda/train", ""))
        self.assertEqual(self.chosen(gpu=True, flags=AVX512), ("v4-cuda/train", ""))
        self.assertEqual(self.chosen("ckpt", gpu=True), ("v3-mpi/ckpt", ""))

    def test_nothing_is_said_of_gpus_on_a_machine_without_one(self):
        self.add_cuda()
        self.install_mpi()
        self.install_cuda()
        self.assertEqual(self.chosen(), ("v3-mpi/train", ""))

    def start(self, *command):
        return subprocess.run([sys.executable, *command], env={**os.environ, "PYTHONPATH": str(self.site)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_the_process_becomes_the_program_with_its_arguments_and_exit_code(self):
        script(self.site / "flatshard/v3/train", 'echo "$1|$2|$#|$$"; exit 75')
        for name in ("__init__.py", "__main__.py"):
            (self.site / "flatshard" / name).write_text((TREE / ".packaging/wheel/flatshard" / name).read_text())
        for folder in ("v4", "v4-mpi"):
            for program in flatshard.PROGRAMS:
                (self.site / "flatshard" / folder / program).unlink()
            (self.site / "flatshard" / folder).rmdir()
        process = subprocess.Popen([sys.executable, "-m", "flatshard", "train", "my file.toml", "--ranks=2"], text=True,
                                   env={**os.environ, "PYTHONPATH": str(self.site)}, stdout=subprocess.PIPE)
        self.assertEqual(process.communicate()[0], f"my file.toml|--ranks=2|2|{process.pid}\n")
        self.assertEqual(process.returncode, 75)
        command = self.site / "flatshard-train"
        command.write_text("import flatshard\nflatshard.main()\n")
        self.assertRegex(self.start(str(command), "a").stdout, r"^a\|\|1\|\d+\n$")
        self.assertIn("PROGRAM is one of: train, prepare", self.start("-m", "flatshard", "trian").stdout)
        script(self.site / "flatshard/v3/train")
        (self.site / "flatshard/v3/train").chmod(0o644)
        refused = self.start("-m", "flatshard", "train")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stdout, r"^train: .*flatshard/v3/train'?\n$")


class ProjectTest(unittest.TestCase):
    """What pyproject.toml and the launcher repeat of the tree."""

    def setUp(self):
        read = lambda path: (TREE / path).read_text()
        self.project, self.cmake = read("pyproject.toml"), read("CMakeLists.txt")
        self.programs_of_wheel, self.fetch_arrow = read(".packaging/wheel/programs.cmake"), read(".ci/fetch_arrow")

    def found(self, pattern, text):
        [match] = re.findall(pattern, text, re.MULTILINE)
        return match

    def test_the_version_is_that_of_the_programs(self):
        self.assertEqual(self.found(self.found("^regex = '(.*)'$", self.project), self.cmake), VERSION)

    def test_the_commands_are_the_programs(self):
        programs = tuple(self.found(r"^set\(FLATSHARD_PROGRAMS (.*)\)$", self.cmake).split())
        self.assertEqual(programs, flatshard.PROGRAMS)
        self.assertEqual(programs, tuple(re.findall('^flatshard-([a-z]+) = "flatshard:main"$', self.project, re.MULTILINE)))
        self.assertEqual(tuple(self.found(r"^ *set\(wheel_programs ([a-z ]+)\)$", self.programs_of_wheel).split()), flatshard.ON_GPUS)

    def test_arrow_is_that_of_other_builds(self):
        self.assertEqual(self.found('"pyarrow==([0-9.]+)"', self.project), self.found("^version=([0-9.]+)$", self.fetch_arrow))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
