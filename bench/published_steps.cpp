#include "bench/published_steps.h"

#include <iomanip>
#include <set>
#include <sstream>

#include "runtime/check.h"

namespace flatshard::bench {
namespace {

struct PublishedStep {
  const char *model, *products;
  int64_t batch, seq_len, micro_steps;
  double seconds;  // median of the steps after the first
};

// IST-DASLab/llmq, benchmarks/H100x1.md at 7f895bd: one H100, --model-dtype=bf16 --opt-m-dtype=bf16
// --opt-v-dtype=bf16 --use-cuda-graphs. The step times are those that its lines print.
constexpr PublishedStep kLlmq[] = {
    {"qwen2.5-0.5b", "bf16", 32, 1024, 16, 3.504},
    {"qwen2.5-0.5b", "FP8 (E4M3)", 32, 1024, 16, 3.185},
    {"qwen2.5-1.5b", "bf16", 32, 1024, 16, 8.849},
    {"qwen2.5-1.5b", "FP8 (E4M3)", 32, 1024, 16, 7.183},
};
constexpr const char* kLlmqGpu = "H100";

// What LLM.Q computes otherwise. Of its sources: README.md (--model-dtype), src/kernels/cudnn_att.cpp.
constexpr const char* kLlmqDiffers =
    "its weights, moments and gradients are bf16, ours fp32; its attention is cuDNN's in its deterministic "
    "mode, "
    "ours has one result on any number of ranks; its data are texts, ours random tokens";

}  // namespace

void check_published(const std::string& model) {
  std::set<std::string> models;
  for (const PublishedStep& p : kLlmq) models.insert(p.model);
  std::string names;
  for (const std::string& each : models) names += " " + each;
  check(models.contains(model), "--peer: no speed of ", model, " is published; there are speeds of", names);
}

std::string published_lines(const StepResult& ours, const std::string& device) {
  check_published(ours.model);
  std::ostringstream out;
  out << std::fixed;
  for (const PublishedStep& p : kLlmq) {
    if (ours.model != p.model) continue;
    const double rate = static_cast<double>(p.batch * p.seq_len * p.micro_steps) / p.seconds;
    out << "LLM.Q, products in " << p.products << ", " << p.batch << " x " << p.seq_len << " tokens x "
        << p.micro_steps << ": " << std::setprecision(0) << rate << " tokens/s; ours / LLM.Q "
        << std::setprecision(3) << ours.tokens_per_second() / rate;
    if (ours.tokens != p.batch * p.seq_len * p.micro_steps || ours.micro_steps != p.micro_steps ||
        ours.seq_len != p.seq_len)
      out << ", but of " << ours.batch() << " x " << ours.seq_len << " tokens x " << ours.micro_steps;
    if (device.find(kLlmqGpu) == device.npos) out << ", but on " << device << ", not on an " << kLlmqGpu;
    out << '\n';
  }
  out << "differences: " << kLlmqDiffers << "; products of ours in " << ours.compute << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
