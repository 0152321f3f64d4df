#pragma once
// Trains a tiny model for a few steps on all ranks of the world, with poisoned memory, and returns the
// results. A model that reads images trains on documents with images (tests/train/image_workshop.h).

#include <map>
#include <string>
#include <utility>

#include "comm/world.h"
#include "text/data/data.h"
#include "text/data/token_file.h"
#include "train/config/config.h"
#include "train/step/training_runtime.h"

namespace flatshard::test {

class MatrixRun {
 public:
  explicit MatrixRun(World& world);

  // A hash of the final weights, all losses by lane, all norms and one evaluation; "" on ranks other than 0.
  std::string fingerprint(const Config& config, StreamOrder order, int steps);
  // Whether all ranks skip a step in which only `one_rank` has nonfinite gradients: no bit of any rank's
  // state changes, the loss scale is halved on all ranks, and the next step is not skipped.
  bool all_skip_when(int one_rank, const Config& config, StreamOrder order);
  // A hash of this rank's shards before the first step.
  std::string first_shards(const Config& config);
  // The loss of the last step, on all ranks.
  double final_loss(const Config& config, int steps);
  // The bytes that this rank received in the second of two steps, and the bytes stated by the unit table.
  // With one level, all bytes count as received inside a host.
  struct Received {
    Bytes gathered, reduced, norm;
    bool operator==(const Received&) const = default;
  };
  std::pair<Received, Received> received_and_stated(const Config& config);

 private:
  struct Outcome {
    std::vector<double> losses;  // one loss per lane
    double norm;
  };
  Outcome step(TrainingRuntime& runtime, const RunSetup& setup, const Data& data, int number);
  std::string own_state(TrainingRuntime& runtime) const;
  std::vector<double> evaluate(TrainingRuntime& runtime, const RunSetup& setup);
  const TokenFile& corpus_for(const RunSetup& setup);
  Data data(const RunSetup& setup);

  World& world_;
  TokenFile corpus_;
  std::map<std::string, TokenFile> image_corpora_;  // keyed by family
};

}  // namespace flatshard::test
