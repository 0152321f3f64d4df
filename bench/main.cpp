// bench [words...]: times the ops on large shapes and compares them with the peak rates of the machine. See
// bench/README.md.

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <unistd.h>

#include "bench/bf16_bench.h"
#include "bench/checkpoint_bench.h"
#include "bench/comm_bench.h"
#include "bench/decode_bench.h"
#include "bench/image_bench.h"
#include "bench/kernel_resources.h"
#include "bench/lora_bench.h"
#include "bench/op_bench.h"
#include "bench/options.h"
#include "bench/published_steps.h"
#include "bench/report.h"
#include "bench/step_bench.h"
#include "bench/strategy_bench.h"
#include "bench/tokenizer_bench.h"
#include "bench/words.h"
#include "runtime/gpu.h"
#include "runtime/parallel.h"
#include "runtime/whole_file.h"
#include "train/command_line/program.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

constexpr double kCaseSeconds = 2, kStepSeconds = 10, kStrategySeconds = 20;

Device device_of(const Options& options) {
  if (options.device == "cpu") return Device::cpu();
  check(options.list || cuda_device_count() > 0,
        "--device cuda: no GPU is available, or this build has no CUDA");
  return Device::cuda(0);
}

// The config keys among the arguments that are no options: "train.recompute=selective".
std::vector<std::string> keys_of(const Options& options) {
  std::vector<std::string> keys;
  for (const std::string& argument : options.rest) {
    const size_t equals = argument.find('='), dot = argument.find('.');
    check(argument.starts_with("--") && equals != argument.npos && dot < equals, argument,
          ": unknown option; see bench --help");
    check(options.step && !options.lora, argument, ": config keys are for --step, without --lora");
    keys.push_back(argument.substr(2));
  }
  return keys;
}

std::vector<std::string> compute_types(const std::vector<std::string>& words) {
  if (words.empty()) return {"fp32", "bf16"};
  std::vector<std::string> types;
  for (const std::string& word : words) {
    check(label_word(word) == "f32" || word == "bf16", word, ": the compute type must be fp32 or bf16");
    types.push_back(word == "bf16" ? "bf16" : "fp32");
  }
  return types;
}

// Measures only the ceilings that steps are compared with, because large models leave little memory.
Ceilings step_ceilings(Device device, bool small, const std::vector<std::string>& types) {
  CeilingSizes sizes = small ? kSmallCeilings : CeilingSizes{.copy_floats = int64_t{1} << 26};
  sizes.products.clear();
  for (const std::string& compute : types)
    sizes.products.push_back(compute == "bf16" ? DType::bf16 : DType::f32);
  return measure_ceilings(device, sizes);
}

// Answers each line of standard input with a line of JSON about a measurement.
template <class Measure>
void serve_steps(Measure&& measure) {
  std::cout << "{}" << std::endl;  // the server is ready
  for (std::string line; std::getline(std::cin, line);) std::cout << json_line(measure()) << std::endl;
}

int time_steps(const Options& options, World& world) {
  StepOptions training = options.training;
  training.device = device_of(options);
  if (options.peer) check_published(training.model);
  check(!options.ops || training.device.is_cuda(), "--ops times the ops of a GPU: add --device cuda");
  if (options.list) {
    for (const std::string& compute : compute_types(options.words)) {
      training.compute = compute;
      std::cout << step_plan(training);
    }
    return 0;
  }
  if (options.threads > 0) set_thread_count(options.threads);
  const double seconds = options.seconds_or(kStepSeconds);
  const Machine machine = this_machine(training.device);
  const std::vector<std::string> types = compute_types(options.words);
  Ceilings ceilings = step_ceilings(training.device, options.small, types);
  if (options.serve) {
    check(types.size() == 1, "--step --serve needs one compute type: fp32 or bf16");
    training.compute = types.front();
    if (options.lora) {
      LoraBench bench(training, world, ceilings);
      serve_steps([&] { return bench.round(); });
    } else {
      StepBench bench(training, world, ceilings);
      serve_steps([&] { return bench.measure(seconds); });
    }
    return 0;
  }
  if (options.lora) {
    std::cout << head_lines(machine, ceilings) << '\n' << lora_header(training) << std::flush;
    for (const std::string& compute : types) {
      training.compute = compute;
      std::cout << lora_lines(compute, LoraBench(training, world, ceilings).measure(seconds)) << std::flush;
    }
    return 0;
  }
  std::cout << head_lines(machine, ceilings) << '\n' << step_header(training.model) << std::flush;
  std::vector<StepResult> results;
  const auto write_json = [&] {  // the first call fails early if the file cannot be written
    if (!options.json_file.empty()) write_whole_file(options.json_file, to_json(machine, ceilings, results));
  };
  write_json();
  for (const std::string& compute : types) {
    training.compute = compute;
    results.push_back(StepBench(training, world, ceilings).measure(seconds));
    std::cout << step_line(results.back());
    if (options.ops) std::cout << step_ops_table(results.back().ops, results.back().seconds.median);
    if (options.peer)
      std::cout << published_lines(results.back(),
                                   training.device.is_cuda() ? gpu_name(training.device) : machine.processor);
    std::cout << std::flush;
    write_json();
  }
  return 0;
}

int time_decoding(const Options& options) {
  check(options.device == "cpu", "--decode runs on the CPU: leave out --device");
  if (options.threads > 0) set_thread_count(options.threads);
  std::vector<DType> dtypes;
  for (const std::string& compute : compute_types(options.words))
    dtypes.push_back(compute == "bf16" ? DType::bf16 : DType::f32);
  std::cout << decode_table(options.decode,
                            measure_decode(options.decode, dtypes, options.seconds_or(kCaseSeconds)));
  return 0;
}

int time_checkpoints(const Options& options, World& world) {
  check(options.device == "cpu" && options.json_file.empty(),
        "--checkpoint runs on the CPU and has no JSON output: leave out --device and --json");
  constexpr int kSamples = 7;
  set_thread_count(options.threads > 0 ? options.threads : threads_for(world));
  const CheckpointResult result = measure_checkpoints(world, kSamples);
  if (world.rank() == 0) std::cout << checkpoint_table(result) << std::flush;
  return 0;
}

int time_tokenizer(const Options& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  TokenizerOptions tokenizer = options.tokenizer;
  tokenizer.seconds = options.seconds_or(kCaseSeconds);
  std::cout << tokenizer_table(measure_tokenizer(tokenizer)) << std::flush;
  return 0;
}

int time_image(const Options& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  std::cout << image_table(
      options.image, measure_image(options.image, options.image_model, options.seconds_or(kCaseSeconds)));
  return 0;
}

// Fails if the choice for this processor is the slower way.
int time_bf16(const Options& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const Bf16Choice choice = bf16_products();
  const std::vector<Bf16Result> results = measure_bf16(options.words, options.seconds_or(kCaseSeconds));
  std::cout << bf16_table(choice, results) << std::flush;
  return is_right(choice, results) ? 0 : 1;
}

// Times several ranks. Rank 0 prints.
int time_ranks(const Options& options, World& world) {
  check(options.device == "cpu",
        "--device cuda: --comm and --step run on the CPU under mpirun; leave it out");
  check(options.step || options.comm, "under mpirun, give --comm, --step or --checkpoint");
  check(options.training == StepOptions{} && !options.lora && !options.small && !options.serve &&
            !options.ops && !options.peer && options.words.empty(),
        "under mpirun the models and variants are fixed: give only --seconds, --threads and, with "
        "--comm, --json");
  set_thread_count(options.threads > 0 ? options.threads : threads_for(world));
  const Machine machine = this_machine(Device::cpu());
  if (world.rank() == 0)
    std::cout << machine.processor << ", " << machine.threads << " threads per rank, commit "
              << machine.commit << "\n\n";
  if (options.comm) {
    const std::vector<CommResult> results = measure_comm(world, options.seconds_or(kCaseSeconds));
    if (world.rank() == 0 && !options.json_file.empty())
      write_whole_file(options.json_file, to_json(machine, results));
  } else {
    check(options.json_file.empty(), "--json: steps on several ranks have no JSON output");
    for (const char* compute : {"fp32", "bf16"}) {
      const auto results =
          measure_strategies(world, {.compute = compute, .seconds = options.seconds_or(kStrategySeconds)});
      if (world.rank() == 0) std::cout << strategy_table(results, compute, world.size()) << std::endl;
    }
  }
  return 0;
}

// The PTX machine replaces the CUDA runtime at link time, so this needs another program.
[[noreturn]] void become_vm_bench(const Options& options) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ptx_vm_bench";
  check(std::filesystem::exists(program), "--vm: this build has no ", program.filename().string(),
        "; configure a build with nvcc on the PATH to get it");
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
  std::erase_if(all, [&](const KernelResources& k) { return !contains_all(k.kernel, options.words); });
  std::cout << resource_table(all);
  return 0;
}

int run(Options& options) {
  options.training.keys = keys_of(options);
  if (options.vm) become_vm_bench(options);
  if (options.resources) return print_resources(options);
  if (!options.decode.empty()) return time_decoding(options);
  if (!options.tokenizer.text.empty()) return time_tokenizer(options);
  if (!options.image.empty()) return time_image(options);
  if (options.bf16) return time_bf16(options);
  World world;
  if (options.checkpoint) return time_checkpoints(options, world);
  if (world.size() > 1 || options.comm) return time_ranks(options, world);
  if (options.step) return time_steps(options, world);
  const OpOptions ops{.words = options.words,
                      .device = device_of(options),
                      .seconds = options.seconds_or(kCaseSeconds),
                      .small = options.small,
                      .detail = options.detail,
                      .rounds = options.rounds,
                      .tuned = options.tuned,
                      .json_file = options.json_file};
  if (options.list) {
    for (const Case& c : op_cases(ops)) std::cout << label(c) << '\n';
    return 0;
  }
  if (options.threads > 0) set_thread_count(options.threads);
  if (options.repeat > 0) return repeat_ops(ops, options.repeat, std::cout);
  if (!options.serve) return time_ops(ops, std::cout);
  serve_ops(ops, std::cin, std::cout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const Command program{
      .name = "bench",
      .about =
          "Times the ops of Flatshard on large shapes and compares them with the peak rates of this machine.",
      .options = options_of(options),
      .run = [&] { return run(options); },
      .footer =
          "With --step, config keys of the run follow as --section.key=value, such as "
          "--train.recompute=selective.",
      .rest = &options.rest};
  return run_program(program, {argv + 1, argv + argc}, {std::cin, std::cout, std::cerr});
}
