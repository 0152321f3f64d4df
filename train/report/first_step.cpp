#include "train/report/first_step.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "runtime/host_memory.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// The first sequence of the first lane that this rank computes.
std::vector<int32_t> first_row(const RunSetup& setup, int rank, const Data& data) {
  const int64_t N = setup.batching.lane_sequences * setup.seq_len();
  std::vector<int32_t> tokens(static_cast<size_t>(N)), positions(tokens), targets(tokens),
      boundaries(tokens.size() + 1);
  const auto tensor = [](std::vector<int32_t>& v) {
    return Tensor{v.data(), DType::i32, {static_cast<int64_t>(v.size())}, Device::cpu()};
  };
  const int64_t lane = lane_part_of(setup.units, setup.groups, setup.data_rank(rank), 0, 0);
  data.read(0, lane,
            {.tokens = tensor(tokens),
             .positions = tensor(positions),
             .targets = tensor(targets),
             .boundaries = tensor(boundaries)});
  tokens.resize(static_cast<size_t>(setup.seq_len()));
  return tokens;
}

// The number of parameters in a rank's shard.
int64_t owned_parameters(const ShardedUnit& unit) {
  int64_t count = 0;
  const auto add = [&](const FlatLayout& layout, const Tensor& shard) {
    for (const auto& [param, first, tensor] : layout.values_in_shard(unit.shard_index(), shard)) {
      const ParamSpec& spec = unit.params()[param];
      count += spec.parameter_count() * tensor.size() / spec.shape.size();
    }
  };
  if (unit.has_gradients()) add(unit.trainable(), unit.shard().p);
  add(unit.frozen(), unit.frozen_shard());
  return count;
}

}  // namespace

std::string ends_of(std::span<const int32_t> row) {
  constexpr size_t kEnd = 4;
  std::string text = "[";
  for (size_t i = 0; i < row.size(); ++i) {
    if (row.size() > 2 * kEnd + 1 && i == kEnd) {
      i = row.size() - kEnd;
      text += ", ...";
    }
    text += str(i > 0 ? ", " : "", row[i]);
  }
  return text + "]";
}

FirstStep first_step(const RunSetup& setup, int rank, const Data& data, Engine& engine) {
  const std::string prefix = str("[rank ", rank, "] step 1: ");
  const ProcessMemory memory = process_memory();
  std::ostringstream units;
  units << std::fixed << std::setprecision(2);
  for (const ShardedUnit& unit : engine.units()) {
    const int64_t all = unit.params().parameter_count(), mine = owned_parameters(unit);
    units << prefix << unit.role().name << ": " << with_commas(all) << " parameters, " << with_commas(mine)
          << " on this rank (" << 100.0 * static_cast<double>(mine) / static_cast<double>(all) << "%)\n";
  }
  return {
      .brief = str(prefix, "memory now ", human_bytes(memory.resident), ", peak ", human_bytes(memory.peak),
                   ", machine total ", human_bytes(memory.machine), '\n', prefix, "mini-batch of ",
                   setup.batching.lanes * setup.batching.lane_sequences, " x ", setup.seq_len(), " tokens\n",
                   prefix, "1st row of the mini-batch: ", ends_of(first_row(setup, rank, data)), '\n'),
      .units = std::move(units).str()};
}

FirstStep of_all_ranks(FirstStep mine, World& world) {
  FirstStep all;
  for (std::string FirstStep::*const text : {&FirstStep::brief, &FirstStep::units})
    world.collect([&] { return std::exchange(mine.*text, ""); },
                  [&](int, const std::string& of_rank) { all.*text += of_rank; });
  return all;
}

}  // namespace flatshard
