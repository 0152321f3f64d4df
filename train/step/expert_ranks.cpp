#include "train/step/expert_ranks.h"

#include <algorithm>

#include "kernels/grouped_product.h"

namespace flatshard {
namespace {

Communicator& ranks_of(LayerUnits& units) { return units.shared().comms.compute.inside(); }

}  // namespace

ExpertRanks::ExpertRanks(LayerUnits& units, int64_t experts, bool reads, Arena& arena, Arena& staging)
    : ExpertExchange(ranks_of(units).size(), ranks_of(units).rank()),
      units_(units),
      ranks_(ranks_of(units)),
      reads_(reads),
      offsets_(staging, arena.alloc(DType::i32, {size(), experts + 1})) {}

void ExpertRanks::begin(Stream& stream, const Tensor& offsets) {
  ranks_.all_gather(stream, offsets_.device, offsets, "rows of experts");
  known_ = reads_ && !stream.planning();
  if (!known_ || !stream.device().is_cuda()) return;
  offsets_.download(stream);
  stream.sync();
}

int64_t ExpertRanks::rows(const Stream& stream, int from, int to, int64_t most, int64_t expected) const {
  if (stream.recording() && reads_) return expected;
  if (!known_) return most;
  const Tensor offsets = of_rank(offsets_.host, from);
  const int64_t experts = (offsets.size() - 1) / size();
  const auto* const begin = offsets.as<int32_t>() + to * experts;
  return std::max<int64_t>(begin[experts] - begin[0], kSegmentRows);
}

}  // namespace flatshard
