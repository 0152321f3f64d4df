#include "train/step/evaluation.h"

namespace flatshard {

std::optional<double> evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world,
                                      const std::function<bool()>& interrupted) {
  double sum = 0, targets = 0;
  for (int64_t batch = 0; batch < data.steps_per_epoch(); ++batch) {
    std::vector<double> mine;  // {sum, targets} of each row, and whether to stop
    for (const SequenceLoss& s : engine.evaluate(data, batch)) {
      mine.push_back(s.sum);
      mine.push_back(s.targets);
    }
    mine.push_back(interrupted());
    const std::vector<double> all = world.all_gather(mine, "evaluation losses");
    bool stops = false;
    for (size_t begin = 0; begin < all.size(); begin += mine.size()) {
      const size_t end = begin + mine.size() - 1;
      for (size_t i = begin; i < end; i += 2) {
        sum += all[i];
        targets += all[i + 1];
      }
      stops = stops || all[end] != 0;
    }
    if (stops && batch + 1 < data.steps_per_epoch()) return {};
  }
  check(targets > 0, path, " has no targets to evaluate on");
  return sum / targets;
}

}  // namespace flatshard
