#pragma once
// Trains a tiny model for a few steps on all ranks of the world, with poisoned memory, and tells what came
// out.

#include <utility>

#include "comm/world.h"
#include "train/config/config.h"
#include "train/step/machinery.h"
#include "train/text/data.h"
#include "train/text/token_file.h"

namespace flatshard::test {

class MatrixRun {
 public:
  explicit MatrixRun(World& world);

  // One hash over the weights at the end, and every lane's loss, every norm and an evaluation on the way. On
  // rank 0; "" on the others.
  std::string fingerprint(const Config& config, StreamOrder order, int steps);
  // Whether a step in which one rank alone has gradients that are not finite is skipped by all: nothing that
  // any rank owns changes by a bit, and the loss scale halves everywhere; and the next one is not.
  bool all_skip_when(int one_rank, const Config& config, StreamOrder order);
  // A hash over what this rank owns before the first step.
  std::string first_shards(const Config& config);
  // The loss of the last step, on all ranks.
  double final_loss(const Config& config, int steps);
  // What this rank received in the second of two steps, and what the table of units says that it is.
  struct Bytes {
    int64_t gathered, reduced, norm;
    bool operator==(const Bytes&) const = default;
  };
  std::pair<Bytes, Bytes> received_and_stated(const Config& config);

 private:
  struct Told {
    std::vector<double> losses;  // of the lanes in order
    double norm;
  };
  Told step(Machinery& machinery, const RunSetup& setup, const Data& data, int number);
  std::string own_state(Machinery& machinery) const;
  std::vector<double> evaluate(Machinery& machinery);
  Data data(const RunSetup& setup) const;

  World& world_;
  TokenFile corpus_;
};

}  // namespace flatshard::test
