#include "train/plan/plan_text.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "runtime/text.h"
#include "train/setup/device_choice.h"

namespace flatshard {
namespace {

std::string trainable_line(const RunPlan& plan) {
  std::ostringstream out;
  out << "trainable params: " << with_commas(plan.trainable)
      << " || all params: " << with_commas(plan.parameters) << " || trainable%: " << std::fixed
      << std::setprecision(4)
      << 100.0 * static_cast<double>(plan.trainable) / static_cast<double>(plan.parameters);
  if (plan.active < plan.parameters) out << " || of a token: " << with_commas(plan.active);
  return std::move(out).str();
}

std::string adapters_line(const RunSetup& setup, const RunPlan& plan) {
  if (!setup.has_adapters()) return "";
  const LoraConfig& lora = setup.config.lora;
  return str("adapters  rank ", lora.rank, ", alpha ", lora.alpha, ", dropout ", lora.dropout, " on ",
             counted(std::ssize(setup.model.adapters), "layer"), "; ",
             human_bytes(plan.trainable * size_of(DType::f32)), " of trained values in fp32, ",
             with_commas(plan.parameters - plan.trainable), " frozen parameters in ",
             setup.config.precision.compute, '\n');
}

std::string quantized_line(const RunSetup& setup) {
  const auto& weights = setup.model.quantized;
  if (weights.empty()) return "";
  const FourBitFormat& format = weights.begin()->second;  // all 4-bit weights of a run have one format
  return str("4-bit     ", format.kind == FourBitKind::nf4 ? "NF4" : "FP4", ", blocks of ", format.block,
             format.nested ? ", 8-bit scales" : "", ", multiplied in ",
             format.compute.value_or(setup.compute), ": ", counted(std::ssize(weights), "layer"), '\n');
}

std::string warning_lines(const RunSetup& setup) {
  std::string lines;
  for (const std::string& warning : setup.warnings) lines += str("warning   ", warning, '\n');
  return lines;
}

std::string tf32_of(const RunSetup& setup) {
  if (!setup.config.precision.tf32) return "";
  return setup.device.is_cuda() ? ", TF32 matrix products" : " (precision.tf32 has no effect on a CPU)";
}

std::string checkpointing_of(const TrainConfig& train) {
  if (train.recompute == Recompute::none) return "";
  return str(", activation checkpointing",
             train.recompute == Recompute::selective          ? " of norms and activations"
             : train.recompute == Recompute::except_attention ? " except attention"
                                                              : "",
             train.offload_activations ? ", in host memory" : "");
}

std::string tiles_line(const TrainConfig& train) {
  return train.tile == 0 ? "" : str("tiles     ", with_commas(train.tile), " tokens of a block at once\n");
}

std::string graphs_line(const RunSetup& setup) {
  const CudaGraphs wanted = setup.config.run.cuda_graphs;
  if (wanted == CudaGraphs::off) return "";
  if (!setup.device.is_cuda())
    return wanted == CudaGraphs::on ? "graphs    off: run.cuda_graphs has no effect on a CPU\n" : "";
  if (setup.uses_graphs())
    return "graphs    micro-steps are captured as CUDA graphs in step 2 and replayed from then on\n";
  return str("graphs    off: ",
             setup.why_no_graphs.empty() ? "several ranks use them only with run.cuda_graphs = true"
                                         : setup.why_no_graphs,
             '\n');
}

// The levels of exchange, for ranks on several hosts; otherwise "".
std::string levels_line(const RunSetup& setup) {
  if (!setup.spans_hosts()) return "";
  if (!setup.uses_two_levels()) {
    const std::string reason = setup.may_use_two_levels ? setup.why_one_level() : "";
    return str("levels    one: every rank exchanges with every other of its group",
               reason.empty() ? "" : str("; ", reason), '\n');
  }
  const RankLevels levels = setup.levels_of(0);
  if (setup.expert_ranks > 1 && levels.group.two())
    return str("levels    two: ", setup.expert_ranks, " ranks that divide experts exchange, then the ",
               levels.group.between(), " groups of such ranks\n");
  const Levels& two = levels.group.two() ? levels.group : levels.replicas;
  return str("levels    two: ", two.inside, " ranks of a host exchange, then the ", two.between(),
             " hosts\n");
}

// Five tensors of rows are exchanged: tokens and outputs of experts in a forward pass; tokens, and the
// gradients of outputs and of tokens, in a backward pass. Choices are taken to be even.
std::string expert_ranks_line(const RunSetup& setup) {
  if (setup.expert_ranks == 1) return "";
  constexpr int64_t kPasses = 5;
  const ModelConfig& model = setup.model;
  const Batching& b = setup.batching;
  const int64_t rows = b.micro_steps * b.lanes * b.lane_sequences * setup.seq_len() *
                       model.experts_per_token * (setup.expert_ranks - 1) / setup.expert_ranks,
                bytes = kPasses * rows * model.hidden * size_of(setup.compute) * model.expert_blocks() /
                        setup.pipeline.stages;
  return str("experts   ", setup.expert_ranks, " ranks divide the experts of a block, ",
             model.experts / setup.expert_ranks, " each; each receives ", human_bytes(bytes),
             " of tokens and results per step if their choices are even\n");
}

std::string lanes_of(const Batching& b) {
  if (b.lane_steps == 1) return str(counted(b.lanes, "lane"), " of ", with_commas(b.lane_sequences));
  return str(with_commas(b.lane_sequences), ", in lanes of ", with_commas(b.lane_steps), " micro-steps");
}

// The numbers of ranks on which the run has the same bits.
std::string bits_of(const Batching& b) {
  if (!b.same_bits_anywhere())
    return "not bit-identical under another split of the batch: its factors are not all powers of two\n";
  if (b.lane_steps == 1) return "bit-identical on 1, 2, 4 ... ranks: sums over lanes are exact\n";
  if (b.all_lanes() == 1)
    return str("one lane, summed in place; train.lane_size = ", b.lane_sequences,
               " is bit-identical on 1, 2, 4 ... ranks, and takes more memory\n");
  return str("bit-identical on 1, 2, 4 ... ", with_commas(b.all_lanes()),
             " ranks with these micro-batches: sums over lanes are exact\n");
}

std::string experts_of(const ModelConfig& c) {
  return str(
      ", ", counted(c.experts, "expert"), " of ", c.expert_ffn, ", ", c.experts_per_token, " a token",
      c.shared_ffn == 0 ? "" : str(", one of ", c.shared_ffn, " for all"),
      c.dense_blocks.empty() ? "" : str(", ", counted(std::ssize(c.dense_blocks), "block"), " without"));
}

}  // namespace

std::string describe_model(const ModelConfig& c) {
  return str(c.family, ", ", counted(c.layers, "layer"), ", hidden ", c.hidden, ", ",
             counted(c.heads, "head"), " of ", c.head_dim,
             c.kv_heads == c.heads ? "" : str(" (", c.kv_heads, " for keys and values)"), ", ffn ", c.ffn,
             c.experts == 0 ? "" : experts_of(c), ", vocabulary ", with_commas(c.vocab),
             *c.window > 0 ? str(", window ", *c.window) : "", *c.tied ? ", tied head" : "");
}

std::string describe_setup(const RunSetup& setup, const RunPlan& plan) {
  const Batching& b = setup.batching;
  const Config& c = setup.config;
  return str("model     ", describe_model(setup.model), "\n          ", trainable_line(plan), '\n',
             adapters_line(setup, plan), quantized_line(setup), warning_lines(setup), "batch     ",
             with_commas(b.total_sequences), " sequences of ", with_commas(setup.seq_len()),
             " tokens = ", counted(b.ranks, "rank"),
             setup.pipeline.stages == 1 ? "" : str(" in each of ", setup.pipeline.stages, " stages"), " x ",
             counted(b.micro_steps, "micro-step"), " x ", lanes_of(b), "\n          ", bits_of(b),
             "precision ", c.precision.compute, " compute", tf32_of(setup),
             ", fp32 master weights, gradients communicated in ", c.precision.reduce,
             checkpointing_of(c.train), '\n', tiles_line(c.train), levels_line(setup),
             expert_ranks_line(setup), graphs_line(setup));
}

std::string device_note(const RunSetup& setup) {
  return setup.device_is_here ? why_on_cpu(setup.config.run.device)
                              : str("planned for a GPU; none is available here (", why_no_cuda_device(), ')');
}

std::string describe_flops(const FlopsPerToken& flops, const ModelConfig& model) {
  std::ostringstream out;
  out << std::setprecision(4) << flops.full * 1e-6 << " MFLOP per token with full attention, "
      << flops.causal * 1e-6 << " MFLOP with causal attention"
      << (model.vision ? ", without images\n" : "\n");
  return std::move(out).str();
}

std::string describe_units(const UnitTable& table, int stages) {
  size_t width = 8;
  const auto label = [](const UnitRow& r) { return r.units > 1 ? str(r.name, " x", r.units) : r.name; };
  for (const UnitRow& row : table.rows) width = std::max(width, label(row).size());
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "units     " << counted(table.all.units, "communication unit")
      << (stages > 1 ? " in stage 0" : "")
      << "; bytes are received by each rank per step, excluding evaluation:\n  " << std::left
      << std::setw(static_cast<int>(width)) << "" << std::right << std::setw(18) << "parameters"
      << std::setw(9) << "share" << std::setw(18) << "per rank" << std::setw(20) << "bytes gathered"
      << std::setw(20) << "bytes reduced" << '\n';
  const auto line = [&](const UnitRow& row, const std::string& name) {
    out << "  " << std::left << std::setw(static_cast<int>(width)) << name << std::right << std::setw(18)
        << with_commas(row.parameters) << std::setw(8)
        << 100.0 * static_cast<double>(row.parameters) / static_cast<double>(table.all.parameters) << '%'
        << std::setw(18) << with_commas(row.shard) << std::setw(20) << with_commas(row.traffic.gathered.all())
        << std::setw(20) << with_commas(row.traffic.reduced.all()) << '\n';
  };
  for (const UnitRow& row : table.rows) line(row, label(row));
  line(table.all, "all");
  if (table.norm.all() > 0)
    out << "  plus " << with_commas(table.norm.all()) << " bytes for the gradient norm\n";
  if (table.bytes().between > 0)
    out << "  between hosts " << with_commas(table.all.traffic.gathered.between) << " gathered and "
        << with_commas(table.all.traffic.reduced.between) << " reduced, plus "
        << with_commas(table.norm.between) << " for the norm\n";
  out << table.warning;
  return std::move(out).str();
}

std::string describe_memory(const std::vector<MemoryRow>& rows) {
  std::ostringstream out;
  for (const MemoryRow& row : rows)
    out << "  " << std::left << std::setw(12) << row.name << std::right << std::setw(16) << row.bytes
        << " B  " << std::setw(10) << human_bytes(row.bytes) << (row.what.empty() ? "" : "  ") << row.what
        << '\n';
  return std::move(out).str();
}

std::string describe_memory(const RunPlan& plan) {
  std::string text = describe_memory(plan.memory);
  if (plan.nccl_bytes > 0)
    text += describe_memory({{"nccl", plan.nccl_bytes,
                              plan.nccl_is_measured ? "beside the sum: taken by NCCL, measured"
                                                    : "beside the sum: an estimate of the buffers of NCCL"}});
  return text;
}

std::string summarize_memory(std::vector<MemoryRow> rows) {
  const int64_t all = rows.back().bytes;
  std::string parts;
  const auto add = [&](const std::string& name, int64_t bytes) {
    parts += str(parts.empty() ? ": " : ", ", name, ' ', human_bytes(bytes));
  };
  const auto host =
      std::find_if(rows.begin(), rows.end(), [](const MemoryRow& r) { return r.name == "host"; });
  if (host != rows.end()) {  // the place of offloaded memory matters more than its use
    add("host", host->bytes);
    add("device", all - host->bytes);
  } else {
    constexpr std::ptrdiff_t kShown = 3;
    rows.pop_back();
    std::stable_sort(rows.begin(), rows.end(),
                     [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
    int64_t rest = all;
    for (auto row = rows.begin(); row != rows.end() && row - rows.begin() < kShown; ++row)
      add(row->name, row->bytes), rest -= row->bytes;
    add("other", rest);
  }
  return str(human_bytes(all), parts, '\n');
}

std::string describe_exchange(const RunSetup& setup, const UnitTable& units, const FlopsPerToken& flops,
                              double peak, const Bandwidth& bandwidth) {
  const int ranks = setup.batching.ranks;
  if (ranks == 1) return "";
  const int64_t bytes = units.bytes().all() / units.micro_steps,
                tokens = setup.batching.lanes * setup.batching.lane_sequences * setup.seq_len();
  const double least = tokens_to_hide(static_cast<double>(bytes), bandwidth.bytes_per_second,
                                      peak / setup.ranks(), flops.causal / setup.pipeline.stages);
  const int64_t between = units.bytes().between / units.micro_steps;
  return str("exchange  ", human_bytes(bytes), " received by each rank per micro-step, ",
             between > 0 ? str(human_bytes(between), " of it from other hosts, ") : "",
             human_seconds(static_cast<double>(bytes) / bandwidth.bytes_per_second), " at ",
             fixed(bandwidth.bytes_per_second * 1e-9, 1), " GB/s ",
             bandwidth.measured ? "(measured)" : "(configured)",
             "\n          can be hidden behind compute from ", with_commas(std::llround(std::ceil(least))),
             " tokens per micro-batch; this run has ", with_commas(tokens), '\n');
}

}  // namespace flatshard
