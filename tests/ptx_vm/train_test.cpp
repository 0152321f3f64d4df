// The program train on the machine, with run.device = "cuda", compared with the CPU.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "build_config.h"
#include "comm/optimizer_kinds.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "ptx_vm/ptx_vm.h"
#include "runtime/json.h"
#include "runtime/rng.h"
#include "runtime/whole_file.h"
#include "tests/process.h"
#include "tests/ptx_vm/train_run.h"
#include "tests/test.h"
#include "text/data/token_file.h"
#include "tools/inference/continuation.h"
#include "train/report/metrics.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr int64_t kVocab = 61;

// A folder with a corpus and a tiny config. Four lanes a step: as many micro-steps on one rank, or a lane of
// each of four.
class Workshop {
 public:
  Workshop(const std::string& family, const std::string& compute)
      : folder_(str("ptx_vm_train_test/", family, '_', compute)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write_corpus("corpus.tok", 30);
    write_corpus("eval.tok", 4);
    std::ofstream(config()) << str(
        "[run]\nseed = 7\nthreads = 1\n[model]\nfamily = \"", family,
        "\"\nlayers = 2\nhidden = 32\nheads = 2\nffn = 48\nvocab = ", kVocab, "\n[data]\ntrain = \"", folder_,
        "/corpus.tok\"\neval = \"", folder_, "/eval.tok\"\nseq_len = 12\npacking = \"documents\"\n",
        "[train]\ntotal_batch_size = 4\nbatch_size_per_device = 1\nlane_size = 1\neval_every = 10\n",
        "[optimizer]\nlr = 1e-2\nweight_decay = 0.1\ngrad_clip = 0.5\n[precision]\ncompute = \"", compute,
        "\"\n[parallel]\ntransport = \"mpi\"\nbandwidth_gbps = 1\n");
  }

  // Tests that follow in this process find the kernels that it began with.
  ~Workshop() {
    use_attention_tier(AttentionTier::newest);
    use_product_kernels(ProductKernels::cublaslt);
  }

  // A run in its own folder, in this process.
  Outcome train(const std::string& device, int steps, WorkOrder order = WorkOrder::in_order,
                const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = arguments_of(device, steps);
    arguments.insert(arguments.end(), options.begin(), options.end());
    const test::Finished finished = train_here(arguments, order);
    said_ = finished.output;
    return outcome_of(finished, run(), device);
  }
  // The same on several ranks, each a process.
  Outcome train(int ranks, int steps, const std::string& order, const std::string& options) {
    std::string command = str("PTX_VM_ORDER=", order, ' ', test::launcher(ranks), "@ptx_vm_train");
    for (const std::string& argument : arguments_of("cuda", steps)) command += " " + argument;
    const test::Finished finished = test::run_command(command + " " + options);
    said_ = finished.output;
    return outcome_of(finished, run(), "cuda");
  }

  // What such a run says that fails.
  std::string error(int ranks, const std::string& environment, const std::string& options) {
    std::string command = str(environment, ' ', test::launcher(ranks), "@ptx_vm_train");
    for (const std::string& argument : arguments_of("cuda", 1)) command += " " + argument;
    const test::Finished finished = test::run_command(command + " " + options);
    CHECK(finished.exit_code == 1);
    return finished.output;
  }

  // The output of the last run.
  const std::string& said() const { return said_; }
  // What a program says that such a run on a number of ranks would take.
  std::string plan(const std::string& program, int ranks, const std::string& options) {
    std::string command = test::launcher(ranks) + program + " --plan";
    for (const std::string& argument : arguments_of("cuda", 1)) command += " " + argument;
    const test::Finished finished = test::run_command(command + " " + options);
    INFO(finished.output);
    REQUIRE(finished.exit_code == 0);
    const size_t table = finished.output.find("memory    of rank 0 of ");
    return finished.output.substr(std::min(table, finished.output.size()));
  }
  std::vector<StepMetrics> metrics() const { return read_metrics(run() + "/metrics.jsonl"); }

  // Greedy text of a model; on a GPU experts compute in 16 bits.
  static std::vector<int32_t> continuation(Device device, const ModelSource& model,
                                           DType dtype = DType::f32) {
    constexpr int64_t kTokens = 6;
    const std::vector<int32_t> prompt{1, 2, 3};
    Generator generator(
        model, {.dtype = dtype, .texts = 2, .capacity = std::ssize(prompt) + kTokens, .device = device});
    const Request request{.prompt = prompt, .most_tokens = kTokens, .sampler = Sampler({.temperature = 0})};
    const std::vector<Continuation> both = continue_prompts(generator, {{request, request}}, {});
    CHECK(both[0].tokens == both[1].tokens);
    return both[0].tokens;
  }
  std::string run() const { return str(folder_, "/run", runs_); }

 private:
  std::string config() const { return folder_ + "/config.toml"; }

  void write_corpus(const std::string& name, int64_t documents) const {
    TokenWriter writer(folder_ + "/" + name, kVocab);
    const RandomStream random(1, "corpus");
    int64_t at = 0;
    for (int64_t document = 0; document < documents; ++document) {
      std::vector<int32_t> tokens(static_cast<size_t>(5 + 7 * (document % 5)));
      for (int32_t& t : tokens) t = static_cast<int32_t>(random.bits(at++) % kVocab);
      writer.add_document(tokens);
    }
    writer.finish();
  }

  std::vector<std::string> arguments_of(const std::string& device, int steps) {
    ++runs_;
    return {config(), "--run.dir=" + run(), "--run.device=" + device, str("--train.steps=", steps)};
  }

  std::string folder_, said_;
  int runs_ = 0;
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::fmax(largest, std::abs(a[i] / b[i] - 1));
  return largest;
}

}  // namespace

TEST_CASE("training on CUDA has the CPU's losses, and the trained model generates the same text on both") {
  struct Run {
    const char *family, *compute;
    size_t steps;
    double tolerance;  // for sums in another order, of values with 24 bits and with 8
  };
  for (const Run& r : {Run{"llama", "fp32", 10, 1e-5},
                       {"gpt2", "bf16", 10, 1e-3},
                       {"llama", "bf16", 3, 1e-3},
                       {"gpt2", "fp32", 3, 1e-5},
                       {"gemma2", "fp32", 3, 1e-5},
                       {"gemma2", "bf16", 3, 1e-3},
                       {"phi3", "fp32", 3, 1e-5},
                       {"olmo2", "fp32", 3, 1e-5}}) {
    CAPTURE(r.family);
    CAPTURE(r.compute);
    Workshop workshop(r.family, r.compute);
    const int steps = static_cast<int>(r.steps);
    const Outcome cpu = workshop.train("cpu", steps), cuda = workshop.train("cuda", steps);
    CHECK(cuda.losses.size() == r.steps + 1);
    CHECK(cuda.losses.back() < cuda.losses.front());
    CHECK(largest_difference(cuda.losses, cpu.losses) <= r.tolerance);
    const ModelSource model(workshop.run() + "/model");
    CHECK(Workshop::continuation(Device::cuda(0), model) == Workshop::continuation(Device::cpu(), model));
  }
}

TEST_CASE("training on CUDA has the same bits in every stream order") {
  Workshop workshop("llama", "bf16");
  const Outcome in_order = workshop.train("cuda", 2);
  for (const WorkOrder order : {WorkOrder::comm_late, WorkOrder::comm_early, WorkOrder::random})
    CHECK(workshop.train("cuda", 2, order) == in_order);
  CHECK(workshop.train("cuda", 2, WorkOrder::comm_late, {"--train.recompute=selective"}) == in_order);
}

TEST_CASE("training on CUDA has the same bits on one rank and several, with offload, and resumed") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  constexpr int kSteps = 2;
  Workshop workshop("llama", "fp32");
  const Outcome one = workshop.train("cuda", kSteps);
  CHECK(workshop.train(2, kSteps, "comm_late", "--checkpoint.save_every=1 --parallel.offload=true") == one);
  const std::string halfway = workshop.run() + "/step-1";
  CHECK(workshop.train(4, kSteps, "comm_early", "--resume " + halfway) == one);
}

// Adapters on a trained model whose width and ranks are odd: of the A factors that form one matrix, only the
// first begins at a multiple of 16 bytes.
std::vector<std::string> adapter_options(Workshop& workshop) {
  std::vector<std::string> options{"--model.hidden=30", "--model.heads=3"};
  workshop.train("cpu", 3, WorkOrder::in_order, options);
  const std::vector<std::string> of_adapters{"--model.init_from=" + workshop.run() + "/model",
                                             "--lora.rank=3", "--lora.dropout=0.1",
                                             "--lora.rank_pattern={k_proj = 1, v_proj = 5}"};
  options.insert(options.end(), of_adapters.begin(), of_adapters.end());
  return options;
}

TEST_CASE("adapters trained on CUDA with dropout have the CPU's losses, and generate the same text on both") {
  struct Run {
    const char *family, *compute;
    double tolerance;  // as above
  };
  for (const Run& r : {Run{"llama", "fp32", 1e-5},
                       {"llama", "bf16", 1e-3},
                       {"gpt2", "fp32", 1e-5},
                       {"gpt2", "bf16", 1e-3}}) {
    CAPTURE(r.family);
    CAPTURE(r.compute);
    Workshop workshop(r.family, r.compute);
    const std::vector<std::string> options = adapter_options(workshop);
    const std::string base = workshop.run() + "/model";
    std::vector<std::string> undropped = options;
    undropped.push_back("--lora.dropout=0");
    const Outcome without = workshop.train("cpu", 4, WorkOrder::in_order, undropped),
                  cpu = workshop.train("cpu", 4, WorkOrder::in_order, options),
                  cuda = workshop.train("cuda", 4, WorkOrder::in_order, options);
    CHECK(largest_difference(cuda.losses, cpu.losses) <= r.tolerance);
    CHECK(largest_difference(without.losses, cpu.losses) > r.tolerance);
    const ModelSource model(base, workshop.run() + "/adapter");
    CHECK(Workshop::continuation(Device::cuda(0), model) == Workshop::continuation(Device::cpu(), model));
  }
}

TEST_CASE("adapters trained on CUDA have the same bits in every stream order, recomputed, and as graphs") {
  constexpr int kSteps = 2;
  Workshop workshop("llama", "bf16");
  std::vector<std::string> options = adapter_options(workshop);
  const Outcome in_order = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
  options.push_back("--train.recompute=true");
  for (const WorkOrder order : {WorkOrder::comm_late, WorkOrder::comm_early, WorkOrder::random})
    CHECK(workshop.train("cuda", kSteps, order, options) == in_order);
  for (const char* option : {"--lora.dropout=0", "--data.packing=wrapped", "--run.cuda_graphs=false"})
    options.push_back(option);
  const Outcome without = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
  options.back() = "--run.cuda_graphs=true";
  CHECK(workshop.train("cuda", kSteps, WorkOrder::in_order, options) == without);
}

TEST_CASE("adapters trained on CUDA have the same bits on several ranks, with offload, and resumed") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  constexpr int kSteps = 2;
  Workshop workshop("llama", "fp32");
  const std::vector<std::string> options = adapter_options(workshop);
  std::string quoted;
  for (const std::string& option : options) quoted += "'" + option + "' ";
  const Outcome one = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
  CHECK(workshop.train(2, kSteps, "comm_late",
                       quoted + "--checkpoint.save_every=1 --parallel.offload=true") == one);
  const std::string halfway = workshop.run() + "/step-1";
  CHECK(workshop.train(4, kSteps, "comm_early", quoted + "--resume " + halfway) == one);
}

TEST_CASE("ranks with a GPU each train over NCCL, with the bits of one rank") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  constexpr int kSteps = 2;
  constexpr const char* kOwnGpus = "in_order PTX_VM_OWN_GPU=yes";  // with a variable of the environment
  Workshop workshop("llama", "bf16");
  const Outcome one = workshop.train("cuda", kSteps);
  const std::string by_itself = "--parallel.transport=auto ";
  const auto says = [&](const std::string& line) { return workshop.said().find(line) != std::string::npos; };
  CHECK(workshop.train(2, kSteps, kOwnGpus, by_itself) == one);
  CHECK(says("transfers NCCL 2."));
  CHECK(says(", on copy engines inside a host; its buffers take "));
  CHECK(workshop.train(2, kSteps, str(kOwnGpus, " PTX_VM_NCCL=windowless"), by_itself) == one);
  CHECK(says(", in kernels on at most 16 multiprocessors: it opens no window"));
  for (const char* strategy : {"full_shard", "shard_grad_op", "zero1", "no_shard"}) {
    CAPTURE(strategy);
    CHECK(workshop.train(4, kSteps, kOwnGpus,
                         by_itself + "--parallel.host_ranks=2 --parallel.strategy=" + strategy) == one);
    CHECK(says("levels    two: 2 ranks of a host exchange, then the 2 hosts\n"));
  }
  CHECK(workshop.train(4, kSteps, kOwnGpus,
                       by_itself + "--parallel.strategy=hybrid --parallel.group_size=2") == one);
  CHECK(workshop.train(2, kSteps, kOwnGpus, by_itself + "--parallel.offload=true") == one);
}

TEST_CASE("pipeline stages send messages over NCCL, with the bits of one rank") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  constexpr int kSteps = 2;
  const std::string stages = "--parallel.transport=nccl --parallel.stages=2 ";
  Workshop workshop("llama", "bf16");
  const Outcome one = workshop.train("cuda", kSteps);
  CHECK(workshop.train(2, kSteps, "in_order PTX_VM_OWN_GPU=yes", stages) == one);
  CHECK(workshop.train(4, kSteps, "comm_late PTX_VM_OWN_GPU=yes", stages + "--parallel.strategy=no_shard") ==
        one);
  const std::string tied = "--model.tied=true";  // then the last stage has the embedding, too
  const Outcome one_tied = workshop.train("cuda", kSteps, WorkOrder::in_order, {tied});
  CHECK(workshop.train(2, kSteps, "comm_early PTX_VM_OWN_GPU=yes",
                       stages + "--parallel.schedule=gpipe " + tied) == one_tied);
}

TEST_CASE("every collective over NCCL delivers what it promises, in groups of any size") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  for (const int ranks : {2, 4}) {
    const test::Finished run = test::run_command("PTX_VM_OWN_GPU=yes " + test::launcher(ranks) +
                                                 "@ptx_vm_rank_matrix --collectives");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find(str("collectives hold on ", ranks, " ranks")) != std::string::npos);
  }
}

TEST_CASE("the watchdog reports a graph that another rank does not launch, by its captured calls") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  // In another order the launch itself would wait for the other rank, inside the machine.
  const test::Finished run = test::run_command("PTX_VM_OWN_GPU=yes PTX_VM_ORDER=comm_late " +
                                               test::launcher(2) + "@ptx_vm_rank_matrix --unmatched");
  CAPTURE(run.output);
  CHECK(run.exit_code != 0);
  CHECK(test::missing_from(run.output,
                           {"[rank 0] replay of captured calls on trial, 8 bytes has not finished for",
                            "parallel.timeout_seconds"}) == "");
}

TEST_CASE("NCCL is refused to ranks that share a GPU, and an initialization that never ends is an error") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  Workshop workshop("llama", "fp32");
  const std::string options = "--parallel.transport=nccl --parallel.timeout_seconds=1";
  CHECK(workshop.error(2, "", options)
            .find("parallel.transport = \"nccl\", but ranks 0 and 1 both use GPU-00000000-0000-0000-0000-") !=
        std::string::npos);
  CHECK(workshop.error(2, "PTX_VM_OWN_GPU=yes PTX_VM_NCCL=stuck", options)
            .find("the initialization of NCCL has taken more than parallel.timeout_seconds = 1: ") !=
        std::string::npos);
}

TEST_CASE("micro-steps give the same bits with and without CUDA graphs, in every stream order") {
  constexpr int kSteps = 2, kMicroSteps = 4;
  Workshop workshop("llama", "bf16");
  // Several lanes at a time are summed on another stream; otherwise the backward pass accumulates, within one
  // lane if it has the whole batch.
  for (const std::string lane_size : {"2", "1", "8"}) {
    CAPTURE(lane_size);
    std::vector<std::string> options{"--data.packing=wrapped", "--train.total_batch_size=8",
                                     "--train.batch_size_per_device=2", "--train.lane_size=" + lane_size,
                                     "--run.cuda_graphs=false"};
    const Outcome without = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
    CHECK(workshop.said().find("graphs    ") == std::string::npos);
    options.back() = lane_size == "1" ? "--run.cuda_graphs=true" : "--run.cuda_graphs=auto";
    std::vector<WorkOrder> orders{WorkOrder::comm_late};
    if (lane_size == "2") orders.insert(orders.end(), {WorkOrder::comm_early, WorkOrder::random});
    for (const WorkOrder order : orders) {
      const uint64_t before = counters().graph_launches;
      CHECK(workshop.train("cuda", kSteps, order, options) == without);
      CHECK(counters().graph_launches - before == kMicroSteps * (kSteps - 1));
    }
    CHECK(workshop.said().find("graphs    micro-steps are captured as CUDA graphs") != std::string::npos);
  }
}

TEST_CASE(
    "micro-steps that exchange over NCCL give the bits of one rank as CUDA graphs, in every stream order") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kNcclBuilt) return test::skip("a build without NCCL");
  // Captured in step 2 and replayed in step 3, after an evaluation. With three slots for the eight gathers of
  // blocks in a step, the next step would begin with other slots than the graphs have.
  constexpr int kSteps = 3;
  constexpr const char *kOptions = "--data.packing=wrapped --train.eval_every=2 --parallel.depth=2 ",
                       *kUsed = "graphs    micro-steps are captured as CUDA graphs";
  Workshop workshop("llama", "bf16");
  const Outcome one = workshop.train(1, kSteps, "in_order", str(kOptions, "--run.cuda_graphs=false"));
  const auto says = [&](const std::string& line) { return workshop.said().find(line) != std::string::npos; };
  const auto on_two = [&](const std::string& order, const std::string& options) {
    return workshop.train(2, kSteps, order + " PTX_VM_OWN_GPU=yes",
                          str(kOptions, "--parallel.transport=nccl ", options));
  };
  CHECK(on_two("in_order", "") == one);
  CHECK(says("graphs    off: several ranks use them only with run.cuda_graphs = true"));
  for (const char* order : {"comm_early", "random"}) {
    CAPTURE(order);
    CHECK(on_two(order, "--run.cuda_graphs=true") == one);
    CHECK(says(kUsed));
  }
  for (const char* strategy : {"zero1", "no_shard"}) {
    CAPTURE(strategy);
    CHECK(on_two("comm_late", str("--run.cuda_graphs=true --parallel.strategy=", strategy)) == one);
    CHECK(says(kUsed));
  }
}

TEST_CASE("a trace of a CUDA run has the ops of its streams and changes no bit, also with CUDA graphs") {
  constexpr int kSteps = 3;
  Workshop workshop("llama", "bf16");
  std::vector<std::string> options{"--data.packing=wrapped", "--run.cuda_graphs=false"};
  const Outcome untraced = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
  for (const char* const graphs : {"false", "true"}) {
    CAPTURE(graphs);
    options = {"--data.packing=wrapped", "--run.trace=2:2", str("--run.cuda_graphs=", graphs)};
    CHECK(workshop.train("cuda", kSteps, WorkOrder::in_order, options) == untraced);
    std::map<std::string, int> spans;
    const auto events =
        nlohmann::json::parse(read_whole_file(workshop.run() + "/trace.json", 1 << 24)).at("traceEvents");
    for (const auto& event : events)
      if (event.at("ph") == "X") ++spans[event.at("name").get<std::string>()];
    CHECK(spans["step 2"] == 1);
    CHECK(spans["update"] == 1);
    CHECK(spans["forward 1"] == 4);  // of as many micro-batches
    CHECK(spans["attention_forward"] == spans["attention_backward"]);
    CHECK(spans["attention_forward"] == 4 * 2);  // of two blocks
    CHECK(spans["gemm"] > spans["attention_forward"]);
    CHECK(spans["adamw"] >= 1);
  }
}

TEST_CASE("TF32 products change a CUDA run slightly, and a CPU run not at all") {
  constexpr double kRounding = 1e-3;  // of factors to 11 bits
  constexpr const char* kTf32 = "--precision.tf32=true";
  Workshop workshop("gpt2", "fp32");
  const Outcome cuda = workshop.train("cuda", 3),
                rounded = workshop.train("cuda", 3, WorkOrder::in_order, {kTf32});
  CHECK(workshop.said().find("fp32 compute, TF32 matrix products, fp32 master weights") != std::string::npos);
  CHECK(rounded.losses != cuda.losses);
  CHECK(largest_difference(rounded.losses, cuda.losses) <= kRounding);
  const Outcome cpu = workshop.train("cpu", 3);
  CHECK(workshop.train("cpu", 3, WorkOrder::in_order, {kTf32}) == cpu);
  CHECK(workshop.said().find("(precision.tf32 has no effect on a CPU)") != std::string::npos);
}

TEST_CASE("timed products are kept in a file, used by all ranks, and named by the run") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  Workshop workshop("llama", "bf16");
  const Outcome one = workshop.train("cuda", 2);
  CHECK(workshop.said().find(
            "\nproducts  chosen by the heuristics of cuBLASLt\nattention kernels for sm_90\n") !=
        std::string::npos);
  const std::string spare = "--run.spare_multiprocessors=16";
  CHECK(workshop.train("cuda", 2, WorkOrder::in_order, {spare}) == one);
  CHECK(workshop.said().find("heuristics of cuBLASLt, for 116 of 132 multiprocessors\n") !=
        std::string::npos);
  CHECK(workshop.train(2, 2, "in_order", spare) == one);
  const std::string file = workshop.run() + "/products", option = "--run.tuned_products=" + file;
  CHECK(workshop.train("cuda", 2, WorkOrder::in_order, {option}) == one);  // the machine has one way to sum
  const std::string set = test::after(workshop.said(), "\nproducts  timed on this GPU, set ");
  CHECK(set.size() > 8);
  const std::string timed = read_whole_file(file, 1 << 20);
  CHECK(std::count(timed.begin(), timed.end(), '\n') > 5);
  CHECK(workshop.train(2, 2, "in_order", option) == one);
  CHECK(read_whole_file(file, 1 << 20) == timed);
}

TEST_CASE("a run can leave out the kernels of attention for its GPU, and says so") {
  Workshop workshop("llama", "bf16");
  const Outcome newest = workshop.train("cuda", 3),
                older = workshop.train("cuda", 3, WorkOrder::in_order, {"--run.attention=sm_80"});
  CHECK(workshop.said().find("\nattention kernels for sm_80, as run.attention says\n") != std::string::npos);
  CHECK(largest_difference(older.losses, newest.losses) <= 1e-3);
}

TEST_CASE("a run can compute attention's backward pass in one pass, and says so") {
  Workshop workshop("llama", "bf16");
  const std::vector<std::string> option{"--run.attention=one_pass"};
  const Outcome two = workshop.train("cuda", 3), one = workshop.train("cuda", 3, WorkOrder::in_order, option);
  CHECK(
      workshop.said().find("\nattention kernels for sm_90, backward in one pass, as run.attention says\n") !=
      std::string::npos);
  CHECK(largest_difference(one.losses, two.losses) <= 1e-3);
  CHECK(workshop.train("cuda", 3, WorkOrder::random, option) == one);
}

TEST_CASE("products by the project's kernel give one rank and several the same bits, and the run says so") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  constexpr int kSteps = 2;
  Workshop workshop("llama", "bf16");
  const std::vector<std::string> option{"--run.products=own"};
  const Outcome cublaslt = workshop.train("cuda", kSteps),
                own = workshop.train("cuda", kSteps, WorkOrder::in_order, option);
  CHECK(
      workshop.said().find("\nproducts  by the project's kernel where it supports them, others chosen by the "
                           "heuristics of cuBLASLt\n") != std::string::npos);
  CHECK(largest_difference(own.losses, cublaslt.losses) <= 1e-3);
  CHECK(workshop.train("cuda", kSteps, WorkOrder::random, option) == own);
  CHECK(workshop.train(2, kSteps, "comm_late", "--run.products=own --train.recompute=true") == own);
  CHECK(workshop.train(4, kSteps, "comm_early", "--run.products=own --parallel.offload=true") == own);
}

TEST_CASE("a mixture of experts on CUDA has the CPU's losses and text, and its bits on several ranks") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  if (!kCublasBuilt) return test::skip("a build without cuBLASLt");
  constexpr int kSteps = 2;
  Workshop workshop("mixtral", "bf16");
  std::vector<std::string> options{"--model.ffn=64",
                                   "--model.experts=8",
                                   "--model.experts_per_token=2",
                                   "--train.router_aux_loss=0.01",
                                   "--train.router_z_loss=0.001",
                                   "--data.packing=wrapped",
                                   "--run.cuda_graphs=false"};
  std::string all;
  for (const std::string& option : options) all += option + ' ';
  const Outcome cpu = workshop.train("cpu", kSteps, WorkOrder::in_order, options),
                cuda = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
  CHECK(largest_difference(cuda.losses, cpu.losses) <= 1e-3);
  const ModelSource model(workshop.run() + "/model");
  CHECK(Workshop::continuation(Device::cuda(0), model, DType::bf16) ==
        Workshop::continuation(Device::cpu(), model, DType::bf16));
  CHECK(workshop.train(2, kSteps, "comm_late", all + "--train.recompute=true") == cuda);
  CHECK(workshop.train(4, kSteps, "comm_early", all + "--parallel.offload=true --parallel.expert_ranks=2") ==
        cuda);
  if constexpr (kNcclBuilt)
    CHECK(workshop.train(2, kSteps, "in_order PTX_VM_OWN_GPU=yes",
                         all + "--parallel.transport=nccl --parallel.expert_ranks=2") == cuda);
  options.back() = "--run.cuda_graphs=true";
  CHECK(workshop.train("cuda", kSteps, WorkOrder::random, options) == cuda);
}

TEST_CASE(
    "adapters of experts on 4-bit weights, experts chosen by sigmoid, and sinks have the CPU's losses on "
    "CUDA") {
  if (!kCublasBuilt) return test::skip("a build without cuBLASLt");
  struct Run {
    const char* family;
    std::vector<std::string> options, adapters;
  };
  for (const Run& r :
       {Run{"mixtral",
            {"--model.experts=4", "--model.experts_per_token=2"},
            {"--lora.rank=8", "--lora.targets=[\"gate_up_proj\", \"down_proj\"]", "--quant.base=nf4"}},
        Run{"glm4_moe",
            {"--model.experts=6", "--model.experts_per_token=2", "--model.expert_ffn=48",
             "--model.shared_ffn=48", "--model.expert_groups=3", "--model.top_groups=2",
             "--model.routed_scale=1.5", "--model.dense_blocks=[0]", "--model.qk_norm=true"},
            {}},
        Run{"gpt_oss",
            {"--model.experts=4", "--model.experts_per_token=2", "--model.window=7",
             "--train.router_aux_loss=0.01"},
            {}},
        Run{"gpt_oss",
            {"--model.experts=4", "--model.experts_per_token=2", "--model.window=7"},
            {"--lora.rank=8", "--lora.targets=[\"gate_up_proj\", \"down_proj\"]"}}}) {
    CAPTURE(r.family);
    Workshop workshop(r.family, "bf16");
    std::vector<std::string> options = r.options;
    if (!r.adapters.empty()) {
      workshop.train("cpu", 1, WorkOrder::in_order, options);
      options.push_back("--model.init_from=" + workshop.run() + "/model");
      options.insert(options.end(), r.adapters.begin(), r.adapters.end());
    }
    const Outcome cpu = workshop.train("cpu", 2, WorkOrder::in_order, options),
                  cuda = workshop.train("cuda", 2, WorkOrder::in_order, options);
    CHECK(largest_difference(cuda.losses, cpu.losses) <= 1e-3);
    CHECK(workshop.train("cuda", 2, WorkOrder::random, options) == cuda);
  }
}

TEST_CASE("a plan for CUDA is the same with and without a GPU, and a run allocates exactly that") {
  Workshop workshop("llama", "bf16");
  // The second has adapters in spare columns, the third needs scratch for attention.
  for (const std::string options : {"", "--lora.rank=8 --quant.base=nf4 --model.ffn=64",
                                    "--run.attention=one_pass", "--run.products=own"}) {
    CAPTURE(options);
    std::set<int64_t> beyond_plan;  // what the program keeps besides, the same on any number of ranks
    for (const int ranks : {1, 2}) {
      if (const std::string why = test::no_ranks_because(); ranks > 1 && !why.empty()) return test::skip(why);
      CAPTURE(ranks);
      const std::string plan = workshop.plan("@ptx_vm_train", ranks, options);
      CHECK(plan.find("memory    of rank 0 of ") == 0);
      CHECK(workshop.plan("@train", ranks, options) == plan);
      CHECK((plan.find("\n  transport  ") != std::string::npos) == (ranks > 1));
      const int64_t planned = std::stoll(test::after(plan.substr(0, plan.find("reduction of")), "\n  all "));
      workshop.train(ranks, 1, "in_order", options);
      beyond_plan.insert(workshop.metrics().back().memory_bytes - planned);
    }
    CHECK(beyond_plan.size() == 1);
  }
}

TEST_CASE("adapters trained on CUDA on 4-bit weights have the CPU's losses, and the same bits on two ranks") {
  struct Run {
    const char *family, *compute;
    std::vector<std::string> options;
    double tolerance;  // as above
  };
  for (const Run& r : {Run{"llama", "fp32", {"--quant.base=nf4", "--quant.double=true"}, 1e-5},
                       {"gpt2", "bf16", {"--quant.base=fp4", "--quant.upcast_norms=true"}, 1e-3}}) {
    CAPTURE(r.family);
    Workshop workshop(r.family, r.compute);
    std::vector<std::string> options = adapter_options(workshop);
    options.insert(options.end(), r.options.begin(), r.options.end());
    const Outcome cpu = workshop.train("cpu", 3, WorkOrder::in_order, options),
                  cuda = workshop.train("cuda", 3, WorkOrder::in_order, options);
    CHECK(largest_difference(cuda.losses, cpu.losses) <= r.tolerance);
    if (!test::no_ranks_because().empty()) continue;
    std::string quoted;
    for (const std::string& option : options) quoted += "'" + option + "' ";
    CHECK(workshop.train(2, 3, "comm_late", quoted + "--parallel.offload=true") == cuda);
  }
}

// Ranks and widths whose rows are whole accesses, so that adapters use spare columns: of all inputs where
// weights have 4 bits; of those of all but the last layer of a block with 96 rows, two lanes at a time. ffn
// is twice the width: the gradient of the last layer's output is copied.
TEST_CASE("adapters in spare columns have the CPU's losses on CUDA, and the same bits however they are run") {
  constexpr int kSteps = 2;
  struct Run {
    const char *family, *compute;
    std::vector<std::string> options;
    double tolerance;  // as above
  };
  for (const Run& r :
       {Run{"llama", "fp32", {"--quant.base=nf4", "--quant.double=true"}, 1e-5},
        {"llama",
         "bf16",
         {"--quant.base=nf4", "--lora.targets=[\"q_proj\", \"v_proj\", \"down_proj\"]"},
         1e-3},
        {"qwen3", "bf16", {"--quant.base=fp4", "--lora.alpha_pattern={v_proj = 5}"}, 1e-3},
        {"gpt2", "fp32", {"--quant.base=nf4", "--lora.dropout=0.1"}, 1e-5},
        {"gemma2",
         "fp32",
         {"--train.total_batch_size=16", "--train.batch_size_per_device=8", "--train.lane_size=8"},
         1e-5}}) {
    CAPTURE(r.family);
    CAPTURE(r.compute);
    Workshop workshop(r.family, r.compute);
    std::vector<std::string> options{"--model.ffn=64"};
    workshop.train("cpu", 2, WorkOrder::in_order, options);
    options.push_back("--model.init_from=" + workshop.run() + "/model");
    options.push_back("--lora.rank=8");
    options.insert(options.end(), r.options.begin(), r.options.end());
    const Outcome cpu = workshop.train("cpu", kSteps, WorkOrder::in_order, options),
                  cuda = workshop.train("cuda", kSteps, WorkOrder::in_order, options);
    CHECK(largest_difference(cuda.losses, cpu.losses) <= r.tolerance);
    options.push_back("");
    options.back() = "--train.recompute=selective";
    CHECK(workshop.train("cuda", kSteps, WorkOrder::random, options) == cuda);
    options.back() = "--train.recompute=true";
    if (!test::no_ranks_because().empty()) continue;
    std::string quoted;
    for (const std::string& option : options) quoted += "'" + option + "' ";
    CHECK(workshop.train(2, kSteps, "comm_late", quoted + "--parallel.offload=true") == cuda);
  }
}

TEST_CASE("training with every optimizer on CUDA has the CPU's losses, in every stream order") {
  Workshop workshop("llama", "fp32");
  const std::string lr = "--optimizer.lr=1e-3";
  const Outcome with_default = workshop.train("cuda", 4, WorkOrder::in_order, {lr});
  for (const OptimizerKind& kind : optimizer_kinds().subspan(1)) {  // other tests train with the default
    CAPTURE(kind.name);
    const std::vector<std::string> options{lr, str("--optimizer.kind=", kind.name)};
    const Outcome cpu = workshop.train("cpu", 4, WorkOrder::in_order, options),
                  cuda = workshop.train("cuda", 4, WorkOrder::in_order, options);
    // Single codes of moments, and signs of averages near zero, may differ.
    CHECK(largest_difference(cuda.losses, cpu.losses) <= 1e-3);
    CHECK(workshop.train("cuda", 4, WorkOrder::comm_late, options) == cuda);
    CHECK(cuda != with_default);
  }
}
