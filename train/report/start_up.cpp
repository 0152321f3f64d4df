#include "train/report/start_up.h"

#include <iomanip>
#include <sstream>

#include "train/config/device_choice.h"
#include "train/config/param_groups.h"

namespace flatshard {
namespace {

std::string plural(int64_t n, const std::string& what) {
  return str(with_commas(n), ' ', what, n == 1 ? "" : "s");
}

std::string trainable_line(const Model& model) {
  const int64_t all = model.parameter_count(), trained = trainable_count(model);
  std::ostringstream out;
  out << "trainable params: " << with_commas(trained) << " || all params: " << with_commas(all)
      << " || trainable%: " << std::fixed << std::setprecision(4)
      << 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  return std::move(out).str();
}

std::string tf32_of(const RunSetup& setup) {
  if (!setup.config.precision.tf32) return "";
  return setup.device.is_cuda() ? ", matrix products in TF32" : " (precision.tf32 is for a GPU alone)";
}

std::string graphs_line(const RunSetup& setup) {
  if (!setup.config.run.cuda_graphs) return "";
  return setup.uses_graphs()
             ? "graphs    each micro-step is captured in the second step, and one call from then on\n"
             : "graphs    none: run.cuda_graphs is for a GPU alone\n";
}

}  // namespace

std::string with_commas(int64_t n) {
  const std::string digits = str(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool begins_group = (digits.size() - i) % 3 == 0;
    if (i > 0 && begins_group && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string describe_model(const ModelConfig& c) {
  return str(c.family, ", ", plural(c.layers, "layer"), ", hidden ", c.hidden, ", ", plural(c.heads, "head"),
             " of ", c.head_dim, c.kv_heads == c.heads ? "" : str(" (", c.kv_heads, " for keys and values)"),
             ", ffn ", c.ffn, ", vocabulary ", with_commas(c.vocab),
             *c.window > 0 ? str(", window ", *c.window) : "", *c.tied ? ", tied head" : "");
}

std::string describe_setup(const RunSetup& setup, const Model& model) {
  const Batching& b = setup.batching;
  const Config& c = setup.config;
  const std::string device = setup.device_is_here ? why_on_cpu(c.run.device)
                                                  : str("planned for a GPU, of which there is none here (",
                                                        why_no_cuda_device(), ')');
  return str("model     ", describe_model(setup.model), "\n          ", trainable_line(model), "\nbatch     ",
             with_commas(b.total_sequences), " sequences of ", with_commas(setup.seq_len()),
             " tokens = ", plural(b.ranks, "rank"), " x ", plural(b.micro_steps, "micro-step"), " x ",
             plural(b.lanes, "lane"), " of ", with_commas(b.lane_sequences), "\n          ",
             b.same_bits_anywhere()
                 ? "sums over lanes are exact: the same bits on 1, 2, 4 ... ranks\n"
                 : "the numbers are not all powers of two: another cut of the batch gives other bits\n",
             "precision ", c.precision.compute, " to compute with", tf32_of(setup),
             ", fp32 masters, gradients travel in ", c.precision.reduce,
             c.train.recompute ? "; activations of blocks are computed again" : "", '\n', graphs_line(setup),
             device.empty() ? "" : str("device    ", device, '\n'));
}

std::string describe_flops(const FlopsPerToken& flops) {
  std::ostringstream out;
  out << std::setprecision(4) << "operations per token: " << flops.full * 1e-6 << " M with full attention, "
      << flops.causal * 1e-6 << " M with its causal half\n";
  return std::move(out).str();
}

}  // namespace flatshard
