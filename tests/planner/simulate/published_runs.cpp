#include "tests/planner/simulate/published_runs.h"

namespace flatshard::test {
namespace {

constexpr const char *kFoundry = "llm-foundry", *kTitan = "torchtitan", *kFsdp = "fms-fsdp",
                     *kNanotron = "nanotron";

// mosaicml/llm-foundry, scripts/train/benchmarking/README.md: MPT, GPT-2's shape with tied embeddings.
PublishedRun mpt(const char* model, const char* gpu, int gpus, int64_t layers, int64_t hidden, int64_t heads,
                 int64_t seq_len, int64_t micro, int64_t accumulation, bool recompute, double rate) {
  return {.trainer = kFoundry,
          .model = model,
          .gpu = gpu,
          .gpus = gpus,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn = 4 * hidden,
          .vocab = 50368,
          .seq_len = seq_len,
          .micro_batch = micro,
          .accumulation = accumulation,
          .strategy = Strategy::full_shard,
          .recompute = recompute,
          .tokens_per_second = rate,
          .gated = false,
          .node_network_gbps = gpu[0] == 'a' ? 200.0 : 0.0};
}

struct Llama {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab;
};
constexpr Llama k2x7b{"Llama-2-7B", 32, 4096, 32, 32, 11008, 32000},
    k2x13b{"Llama-2-13B", 40, 5120, 40, 40, 13824, 32000},
    k2x34b{"Llama-2-34B", 48, 8192, 64, 8, 22016, 32000},
    k2x70b{"Llama-2-70B", 80, 8192, 64, 8, 28672, 32000},
    k3x8b{"Llama-3.1-8B", 32, 4096, 32, 8, 14336, 128256},
    k3x70b{"Llama-3-70B", 80, 8192, 64, 8, 28672, 128256};

PublishedRun llama(const char* trainer, const Llama& m, const char* gpu, int gpus, int64_t seq_len,
                   int64_t micro, int64_t accumulation, bool recompute, double rate) {
  return {.trainer = trainer,
          .model = m.name,
          .gpu = gpu,
          .gpus = gpus,
          .layers = m.layers,
          .hidden = m.hidden,
          .heads = m.heads,
          .kv_heads = m.kv_heads,
          .ffn = m.ffn,
          .vocab = m.vocab,
          .seq_len = seq_len,
          .micro_batch = micro,
          .accumulation = accumulation,
          .strategy = Strategy::full_shard,
          .recompute = recompute,
          .tokens_per_second = rate};
}

}  // namespace

const std::vector<PublishedRun>& published_runs() {
  static const std::vector<PublishedRun> runs = [] {
    std::vector<PublishedRun> all{
        mpt("MPT-1b", "h100-80gb", 8, 24, 2048, 16, 2048, 14, 1, false, 45455),
        mpt("MPT-1b", "h100-80gb", 64, 24, 2048, 16, 2048, 20, 1, false, 44402),
        mpt("MPT-3b", "h100-80gb", 16, 32, 2560, 20, 2048, 10, 3, false, 24142),
        mpt("MPT-7b", "h100-80gb", 8, 32, 4096, 32, 2048, 6, 1, false, 10643),
        mpt("MPT-7b", "h100-80gb", 8, 32, 4096, 32, 8192, 8, 2, true, 6935),
        mpt("MPT-13b", "h100-80gb", 32, 40, 5120, 40, 2048, 2, 1, false, 4811),
        mpt("MPT-30b", "h100-80gb", 16, 48, 7168, 64, 2048, 10, 3, true, 2263),
        mpt("MPT-70b", "h100-80gb", 64, 80, 8192, 64, 2048, 8, 4, true, 1039),
        mpt("MPT-1b", "a100-80gb", 8, 24, 2048, 16, 2048, 14, 4, false, 20513),
        mpt("MPT-7b", "a100-80gb", 8, 32, 4096, 32, 2048, 6, 2, false, 4641),
        mpt("MPT-13b", "a100-80gb", 8, 40, 5120, 40, 4096, 10, 3, true, 2060),
        mpt("MPT-30b", "a100-80gb", 8, 48, 7168, 64, 2048, 3, 21, true, 916),
        mpt("MPT-125m", "a100-40gb", 128, 12, 768, 12, 2048, 26, 1, false, 123936),
        mpt("MPT-3b", "a100-40gb", 128, 32, 2560, 20, 2048, 6, 1, false, 9538),
        mpt("MPT-7b", "a100-40gb", 32, 32, 4096, 32, 2048, 18, 1, true, 3725),
        mpt("MPT-13b", "a100-40gb", 128, 40, 5120, 40, 2048, 16, 1, true, 1972),
        mpt("MPT-30b", "a100-40gb", 128, 48, 7168, 64, 2048, 6, 1, true, 865),
        // pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md and docs/performance.md; selective
        // recomputation, which is not ours, is between none and all: none.
        llama(kTitan, k3x8b, "h100-80gb", 8, 8192, 2, 1, false, 6667),
        llama(kTitan, k3x8b, "h100-80gb", 128, 8192, 2, 1, false, 5605),
        llama(kTitan, k2x13b, "a100-80gb", 64, 4096, 2, 1, false, 2162),
        llama(kTitan, k3x70b, "a100-80gb", 64, 8192, 1, 1, true, 331),
        // pytorch.github.io, _posts/2024-03-13-maximizing-training.md.
        llama(kFsdp, k2x7b, "a100-80gb", 128, 4096, 2, 1, false, 3700),
        llama(kFsdp, k2x34b, "a100-80gb", 128, 4096, 2, 1, true, 700),
        llama(kFsdp, k2x70b, "h100-80gb", 96, 4096, 2, 1, true, 800),
        // huggingface/nanotron, docs/benchmark_summary.svg: pipeline stages with zero1.
        llama(kNanotron, {"Llama 1.34B", 16, 2048, 16, 16, 8192, 131072}, "h100-80gb", 8, 4096, 4, 16, false,
              45358),
        llama(kNanotron, {"Llama 3.57B", 28, 3072, 24, 24, 8192, 131072}, "h100-80gb", 64, 4096, 1, 8, false,
              13689),
        llama(kNanotron, {"Llama 8.86B", 32, 4096, 32, 32, 14336, 131072}, "h100-80gb", 8, 4096, 1, 128,
              false, 7934),
    };
    for (PublishedRun& run : all) {
      if (run.trainer == kNanotron) {
        run.strategy = Strategy::zero1;
        run.stages = run.layers == 32 ? 4 : 2;
      }
      if (run.trainer == kTitan && run.gpu[0] == 'h') run.watts = 500;
      if (run.trainer == kFsdp && run.layers == 32) run.strategy = Strategy::hybrid, run.group_size = 8;
      if (run.trainer == kFsdp) run.node_network_gbps = run.gpu[0] == 'h' ? 100 : 50;
    }
    return all;
  }();
  return runs;
}

double predicted_rate(const PublishedRun& run, const OpProfile& profile) {
  Config c;
  c.run.device = DeviceChoice::cpu;  // the shapes of ops do not depend on it
  c.model = {
      .family = run.gated ? "llama" : "gpt2", .layers = run.layers, .hidden = run.hidden, .heads = run.heads};
  c.model.kv_heads = run.kv_heads;
  c.model.ffn = run.ffn;
  c.model.vocab = run.vocab;
  if (!run.gated) c.model.tied = true;
  c.data.seq_len = run.seq_len;
  c.data.packing = Packing::wrapped;
  c.train.steps = 1;
  c.train.batch_size_per_device = run.micro_batch;
  c.train.total_batch_size = run.micro_batch * run.accumulation * run.gpus / run.stages;
  c.train.recompute = run.recompute ? Recompute::full : Recompute::none;
  c.optimizer.lr = 1e-3;
  c.precision.compute = Precision::bf16;
  c.parallel.strategy = run.strategy;
  c.parallel.group_size = run.group_size;
  c.parallel.reduction = Reduction::native;
  c.parallel.stages = run.stages;
  c.parallel.host_ranks = 8;
  Cluster cluster = usual_cluster(gpu_model(run.gpu));
  cluster.power_watts = run.watts;
  if (run.node_network_gbps > 0)
    cluster.nic_gbps = run.node_network_gbps / static_cast<double>(cluster.nics_per_node);
  const SimulatedStep step = simulate_step(set_up(c, run.gpus, {}, Purpose::plan), cluster, profile);
  return static_cast<double>(c.train.total_batch_size * c.data.seq_len) / step.p50 / run.gpus;
}

}  // namespace flatshard::test
