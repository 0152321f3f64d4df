// bench [words...]: times the ops on large shapes and compares them with what the machine can do. See
// bench/README.md.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "bench/checkpoint_bench.h"
#include "bench/comm_bench.h"
#include "bench/kernel_resources.h"
#include "bench/report.h"
#include "bench/step_bench.h"
#include "bench/strategy_bench.h"
#include "runtime/parallel.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

struct Options {
  std::vector<std::string> words;
  std::string device = "cpu";
  int threads = 0;  // 0: as many as the process may use
  std::string json_file;
  double seconds = 2;
  bool list = false;
  bool step = false, comm = false, checkpoint = false;
  bool vm = false, opcodes = false;
  bool resources = false;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("filter", o.words, "words that a case's line must all hold, such as: rmsnorm bf16");
  app.add_option("--device", o.device, "where to run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "CPU threads (default: all that this process may use)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", o.json_file, "also write every number to this file")->type_name("FILE");
  app.add_option("--seconds", o.seconds, "time limit for the samples of one case")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_flag(
      "--step", o.step,
      "time whole training steps instead of single ops; under mpirun, sharded beside replicated ones");
  app.add_flag("--comm", o.comm, "under mpirun: time collectives beside MPI's own")->excludes("--step");
  app.add_flag("--checkpoint", o.checkpoint,
               "time saving and loading a checkpoint beside plain files, in this folder; also under mpirun")
      ->excludes("--step", "--comm");
  auto* vm =
      app.add_flag("--vm", o.vm, "count what the CUDA twins cost, on the PTX machine: no GPU is needed");
  for (const char* other :
       {"--step", "--comm", "--checkpoint", "--device", "--threads", "--json", "--seconds"})
    vm->excludes(other);
  app.add_flag("--opcodes", o.opcodes, "with --vm: how often each opcode is executed")->needs(vm);
  app.add_flag(
      "--resources", o.resources,
      "print what ptxas gave each CUDA kernel whose name holds all words: registers, stack, shared memory");
  app.add_flag("--list", o.list, "print the cases and stop");
}

Device device_of(const std::string& name) {
  if (name == "cpu") return Device::cpu();
  check(cuda_device_count() > 0, "--device cuda: this process can use no GPU, or this build has no CUDA");
  return Device::cuda(0);
}

// Opened before anything is timed, so that a wrong name does not cost the run.
std::ofstream open_json(const std::string& file) {
  std::ofstream out;
  if (file.empty()) return out;
  out.open(file);
  check(out.is_open(), "--json: cannot write ", file);
  return out;
}

int time_steps(const Options& options, World& world) {
  check(options.device == "cpu",
        "--step: training steps run on the CPU only, until every op has its CUDA twin");
  if (options.threads > 0) set_thread_count(options.threads);
  Ceilings ceilings = measure_ceilings(Device::cpu());
  std::cout << head_lines(this_machine(Device::cpu()), ceilings) << '\n' << step_header() << std::flush;
  for (const char* compute : {"fp32", "bf16"})
    std::cout << step_line(
                     measure_step(compute, {.seconds = std::max(options.seconds, 10.0)}, world, ceilings))
              << std::flush;
  return 0;
}

int time_checkpoints(const Options& options, World& world) {
  check(options.device == "cpu" && options.json_file.empty(), "--checkpoint: on the CPU, without --json");
  constexpr int kSamples = 7;
  set_thread_count(options.threads > 0 ? options.threads : threads_for(world));
  const CheckpointResult result = measure_checkpoints(world, kSamples);
  if (world.rank() == 0) std::cout << checkpoint_table(result) << std::flush;
  return 0;
}

// Several ranks: rank 0 prints.
int time_ranks(const Options& options, World& world) {
  check(options.device == "cpu", "--comm and --step under mpirun: ranks talk through host memory");
  check(options.step || options.comm, "under mpirun: bench --comm, --step or --checkpoint");
  set_thread_count(options.threads > 0 ? options.threads : threads_for(world));
  std::ofstream json = open_json(world.rank() == 0 ? options.json_file : "");
  const Machine machine = this_machine(Device::cpu());
  if (world.rank() == 0)
    std::cout << machine.processor << ", " << machine.threads << " threads to a rank, commit "
              << machine.commit << "\n\n";
  if (options.comm) {
    const std::vector<CommResult> results = measure_comm(world, options.seconds);
    if (json.is_open()) json << to_json(machine, results);
  } else {
    check(options.json_file.empty(), "--json: steps on several ranks have no JSON form");
    for (const char* compute : {"fp32", "bf16"}) {
      const auto results =
          measure_strategies(world, {.compute = compute, .seconds = std::max(options.seconds, 20.0)});
      if (world.rank() == 0) std::cout << strategy_table(results, compute, world.size()) << std::endl;
    }
  }
  return 0;
}

// The PTX machine takes the place of the CUDA runtime at link time, so a program of its own runs on it.
[[noreturn]] void become_vm_bench(const Options& options) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ptx_vm_bench";
  check(std::filesystem::exists(program), "--vm: this build has no ", program.filename().string(),
        "; it takes an nvcc to build it: configure with one on the PATH");
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), options.words.begin(), options.words.end());
  if (options.list) words.emplace_back("--list");
  if (options.opcodes) words.emplace_back("--opcodes");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  fail(str("--vm: cannot start ", program.string(), ": ", std::strerror(errno)));
}

int print_resources(const Options& options) {
  std::vector<KernelResources> all = kernel_resources("/proc/self/exe");
  check(!all.empty(), "--resources: this build has no CUDA kernels");
  std::erase_if(all, [&](const KernelResources& k) {
    return !std::all_of(options.words.begin(), options.words.end(),
                        [&](const std::string& word) { return k.kernel.find(word) != std::string::npos; });
  });
  std::cout << resource_table(all);
  return 0;
}

int run(const Options& options) {
  if (options.vm) become_vm_bench(options);
  if (options.resources) return print_resources(options);
  World world;
  if (options.checkpoint) return time_checkpoints(options, world);
  if (world.size() > 1 || options.comm) return time_ranks(options, world);
  if (options.step) return time_steps(options, world);
  const std::vector<Case> cases = select_cases(all_cases(Scale::bench), options.words);
  if (options.list) {
    for (const Case& c : cases) std::cout << label(c) << '\n';
    return 0;
  }
  const Device device = device_of(options.device);
  if (options.threads > 0) set_thread_count(options.threads);
  std::ofstream json = open_json(options.json_file);

  const Machine machine = this_machine(device);
  const Limits limits{.seconds = options.seconds, .cache_bytes = machine.cache_bytes};
  Ceilings ceilings = measure_ceilings(device);
  Harness harness(device, all_cases(Scale::test), ceilings, limits);
  const Table table(cases);
  std::cout << head_lines(machine, ceilings) << '\n' << table.header() << std::endl;
  std::vector<Result> results;
  for (const Case& c : cases) {
    results.push_back(harness.measure(c));
    std::cout << table.line(results.back()) << std::endl;
  }
  std::cout << '\n' << drift_lines(ceilings) << summary_lines(results);
  if (json.is_open()) {
    json << to_json(machine, ceilings, results) << std::flush;
    check(json.good(), "--json: writing ", options.json_file, " failed");
  }
  const auto bad = [](const Result& r) { return r.skipped.empty() && !r.accuracy.passed(); };
  return std::any_of(results.begin(), results.end(), bad) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the ops of Flatshard on large shapes, beside the ceilings of this machine.");
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "bench: " << error.what() << '\n';
    return 1;
  }
}
