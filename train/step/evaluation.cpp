#include "train/step/evaluation.h"

namespace flatshard {

double evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world) {
  const size_t batches = static_cast<size_t>(data.steps_per_epoch());
  std::vector<double> mine;  // (batch, row, {sum, targets})
  for (size_t batch = 0; batch < batches; ++batch)
    for (const SequenceLoss& s : engine.evaluate(data, static_cast<int64_t>(batch))) {
      mine.push_back(s.sum);
      mine.push_back(s.targets);
    }
  const std::vector<double> all = world.all_gather(mine, "evaluation losses");
  const size_t per_rank = mine.size(), per_batch = per_rank / batches;
  double sum = 0, targets = 0;
  for (size_t batch = 0; batch < batches; ++batch)
    for (size_t rank = 0; rank < static_cast<size_t>(world.size()); ++rank)
      for (size_t i = 0; i < per_batch; i += 2) {
        sum += all[rank * per_rank + batch * per_batch + i];
        targets += all[rank * per_rank + batch * per_batch + i + 1];
      }
  check(targets > 0, path, " has no targets to evaluate on");
  return sum / targets;
}

}  // namespace flatshard
