#include "train/plan/stage_table.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "runtime/text.h"
#include "train/setup/device_map.h"
#include "train/step/training_runtime.h"

namespace flatshard {
namespace {

struct StageRow {
  std::string parts;
  int64_t parameters = 0;
  int in_flight = 0;
  int64_t activations = 0, memory = 0, sent = 0;  // bytes
  double work = 0;                                // share of the model's work
};

// The layers of a chunk, such as "embedding, blocks 0-3".
std::string parts_of(const Chunk& chunk, const Model& model) {
  const int last = model.layer_count() - 1, blocks = model.embedding_layer() + 1,
            width = model.layers_of_block();
  std::string parts = chunk.first > 0 ? "" : model.embedding_layer() > 0 ? "images, embedding" : "embedding";
  const auto add = [&](const std::string& part) { parts += (parts.empty() ? "" : ", ") + part; };
  const int first = std::max(chunk.first, blocks), end = std::min(chunk.end, last);
  if (first < end) {
    const int from = (first - blocks) / width, to = (end - 1 - blocks) / width;
    add(from == to ? str("block ", from) : str("blocks ", from, '-', to));
  }
  if (chunk.end > last) add("head");
  return parts;
}

std::vector<double> work_by_stage(const Pipeline& pipeline, const std::vector<double>& work) {
  std::vector<double> sums(static_cast<size_t>(pipeline.stages), 0);
  for (const Chunk& chunk : pipeline.chunks)
    sums[static_cast<size_t>(chunk.stage)] = std::accumulate(
        work.begin() + chunk.first, work.begin() + chunk.end, sums[static_cast<size_t>(chunk.stage)]);
  return sums;
}

StageRow row_of(const RunSetup& setup, const Model& model, int stage) {
  const Pipeline& pipeline = setup.pipeline;
  const RunPlan plan = plan_run(setup, stage * setup.groups.ranks);
  StageRow row{.parts = "", .parameters = plan.units.all.parameters, .memory = plan.memory_bytes};
  for (const Chunk& chunk : pipeline.chunks)
    if (chunk.stage == stage) row.parts += (row.parts.empty() ? "" : "; ") + parts_of(chunk, model);
  row.in_flight = plan.in_flight;
  for (const MemoryRow& memory : plan.memory)
    if (memory.name == "activations") row.activations = memory.bytes;
  row.sent = plan.sent_bytes;
  return row;
}

// The limits of a run: the work of the stage with the most, as a share of all, and the memory of the rank
// with the most.
struct Largest {
  double work = 0;
  int64_t memory = 0;
};

// The automatic maps that spread work or memory better, with their gains and losses.
std::string better_maps(const RunSetup& setup, const Model& model, const std::vector<double>& work,
                        const Largest& largest) {
  constexpr double kWorthwhile = 0.99;
  std::ostringstream out;
  out << std::fixed << std::setprecision(1);
  for (const DeviceMapKind kind : {DeviceMapKind::automatic, DeviceMapKind::balanced}) {
    if (setup.config.parallel.device_map == DeviceMap(kind)) continue;
    RunSetup other = setup;
    other.config.parallel.device_map = kind;
    other.pipeline = pipeline_of(other.config.parallel, model, setup.seq_len(), setup.batching.micro_steps);
    const std::vector<double> sums = work_by_stage(other.pipeline, work);
    Largest its{.work = *std::max_element(sums.begin(), sums.end()) /
                        std::accumulate(sums.begin(), sums.end(), 0.0)};
    for (int stage = 0; stage < other.pipeline.stages; ++stage)
      its.memory = std::max(its.memory, plan_run(other, stage * other.groups.ranks).memory_bytes);
    const bool works_less = its.work < kWorthwhile * largest.work,
               takes_less =
                   static_cast<double>(its.memory) < kWorthwhile * static_cast<double>(largest.memory);
    if (works_less || takes_less)
      out << "  parallel.device_map = \"" << kind << "\" has at most " << 100 * its.work
          << "% of the work in a stage, not " << 100 * largest.work << "%, and at most "
          << human_bytes(its.memory) << " on a rank, not " << human_bytes(largest.memory) << '\n';
  }
  return std::move(out).str();
}

}  // namespace

std::string describe_stages(const RunSetup& setup) {
  const Pipeline& pipeline = setup.pipeline;
  if (pipeline.stages == 1) return "";
  Arena planning("model", Device::cpu());
  const Model model = grouped_model(setup, planning);
  const std::vector<double> work = work_of_layers(model, setup.seq_len());
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  const std::vector<double> sums = work_by_stage(pipeline, work);
  std::vector<StageRow> rows;
  size_t width = 5;
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    rows.push_back(row_of(setup, model, stage));
    rows.back().work = sums[static_cast<size_t>(stage)] / total;
    width = std::max(width, rows.back().parts.size());
  }
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "stages    " << pipeline.stages << " of "
      << counted(setup.groups.ranks, "rank") << ", schedule " << pipeline.schedule
      << "; memory and bytes of the first rank of each, per step:\n"
      << "  stage  " << std::left << std::setw(static_cast<int>(width)) << "parts" << std::right
      << std::setw(16) << "parameters" << std::setw(11) << "in flight" << std::setw(16) << "activations"
      << std::setw(16) << "memory" << std::setw(16) << "bytes sent" << std::setw(8) << "work" << '\n';
  for (size_t i = 0; i < rows.size(); ++i) {
    const StageRow& row = rows[i];
    out << "  " << std::left << std::setw(7) << i << std::setw(static_cast<int>(width)) << row.parts
        << std::right << std::setw(16) << with_commas(row.parameters) << std::setw(11) << row.in_flight
        << std::setw(16) << row.activations << std::setw(16) << row.memory << std::setw(16) << row.sent
        << std::setw(7) << 100 * row.work << "%\n";
  }
  Largest largest{.work = *std::max_element(sums.begin(), sums.end()) / total};
  for (const StageRow& row : rows) largest.memory = std::max(largest.memory, row.memory);
  const double idle = bubble_of(pipeline, setup.batching.micro_steps);
  out << "  idle while the pipeline fills and drains: " << 100 * idle
      << "% of a step; with this map, stages work " << 100 * (1 - idle) / (largest.work * pipeline.stages)
      << "% of the time\n"
      << better_maps(setup, model, work, largest);
  return std::move(out).str();
}

}  // namespace flatshard
