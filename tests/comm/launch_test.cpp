#include "comm/launch.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "build_config.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

constexpr const char* kVariables[] = {
    "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE",        "JSM_NAMESPACE_SIZE",
    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",        "MPI_LOCALNRANKS", "PMIX_RANK"};

// The environment of a process that a launcher has started: these variables, and none else of a launcher.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : kVariables) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> before_;
};

std::string error_of(const std::map<std::string, std::string>& variables, int joined) {
  const Environment environment(variables);
  return test::error_of([&] { check_ranks_joined(joined); });
}

}  // namespace

TEST_CASE("processes that a launcher started but MPI has not joined are refused") {
  CHECK(error_of({{"OMPI_COMM_WORLD_SIZE", "4"}}, 1) ==
        "a launcher started 4 processes (OMPI_COMM_WORLD_SIZE), but MPI has joined 1: use the mpirun of the "
        "MPI library that this program was built with, or srun with an --mpi that the library supports, such "
        "as pmix; to run one process alone, unset OMPI_COMM_WORLD_SIZE");
  for (const char* name : kVariables) {
    CAPTURE(name);
    const bool of_allocation = std::string(name) == "SLURM_NTASKS";
    CHECK(error_of({{name, "8"}}, 1).empty() == of_allocation);
  }
  CHECK(error_of({{"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "1"}}, 1).find("started 8 processes (PMI_SIZE)") !=
        std::string::npos);
}

TEST_CASE("processes that MPI has joined are accepted, whatever their launcher has inherited") {
  CHECK(error_of({}, 1) == "");
  CHECK(error_of({{"SLURM_NTASKS", "8"}}, 1) == "");  // a batch script
  CHECK(error_of({{"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}, 1) == "");
  CHECK(error_of({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "7"}}, 8) == "");
  // Of mpirun on 4 hosts, whose daemons srun has started.
  CHECK(error_of({{"OMPI_COMM_WORLD_SIZE", "32"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 32) == "");
  CHECK(error_of({{"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "2"}}, 8) == "");
}

TEST_CASE("a run whose launcher started others that it cannot reach trains nothing") {
  const test::Workshop workshop("alone_of_two");
  const test::Finished run =
      test::run_command("cd alone_of_two && SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 @train config.toml");
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find(kMpiBuilt
                            ? "train: a launcher started 2 processes (SLURM_STEP_NUM_TASKS), but MPI has "
                              "joined 1: "
                            : "started as one of 2 ranks, but this build has no MPI") != std::string::npos);
  CHECK(!std::filesystem::exists(workshop.file("runs")));
}
