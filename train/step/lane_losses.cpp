#include "train/step/lane_losses.h"

#include "comm/sharded_unit.h"

namespace flatshard {

GatheredLosses gather_losses(World& world, const RunSetup& setup, std::span<const double> losses,
                             std::span<const double> notes) {
  std::vector<double> mine(losses.begin(), losses.end());
  mine.insert(mine.end(), notes.begin(), notes.end());
  const std::vector<double> all = world.all_gather(mine, "losses");
  std::vector<double> in_order(losses.size() * static_cast<size_t>(setup.groups.ranks));
  GatheredLosses gathered;
  for (int rank = 0; rank < world.size(); ++rank) {
    const double* const values = &all[static_cast<size_t>(rank) * mine.size()];
    for (int64_t local = 0, lanes = setup.batching.lanes; local < std::ssize(losses); ++local)
      in_order[static_cast<size_t>(
          micro_batch_of(setup.units, setup.groups, setup.data_rank(rank), local / lanes,
                         local % lanes))] += values[local];  // 0 but in the last stage
    gathered.notes.emplace_back(values + losses.size(), values + mine.size());
  }
  for (const double loss : in_order) gathered.sum += loss;
  return gathered;
}

}  // namespace flatshard
