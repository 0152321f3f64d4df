#include "train/text/run_data.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

DataOptions data_options(const RunSetup& s, bool evaluation) {
  const int64_t sequences = evaluation ? s.eval_sequences : s.batching.lane_sequences;
  return {.seq_len = s.seq_len(),
          .lane_sequences = sequences,
          .total_sequences = evaluation ? sequences * s.batching.ranks : s.batching.total_sequences,
          .mask_documents = s.mask_documents(),
          .shuffle = !evaluation && s.config.data.shuffle,
          .seed = static_cast<uint64_t>(s.config.run.seed)};
}

}  // namespace

RunData::RunData(const std::string& path, const RunSetup& setup, bool evaluation)
    : file(path), data(file, data_options(setup, evaluation)) {
  check(file.vocab() <= setup.model.vocab, path, " has a vocabulary of ", file.vocab(),
        ", larger than model.vocab = ", setup.model.vocab);
}

}  // namespace flatshard
