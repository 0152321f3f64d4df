// A step in which a single rank has nonfinite gradients, because its loss scale overflows fp16.

#include "runtime/sha256.h"
#include "tests/comm/matrix_run.h"
#include "train/step/finite_steps.h"
#include "train/step/weights.h"

namespace flatshard::test {
namespace {

constexpr double kTooMuch = 1e30;

}  // namespace

// A hash of the state that this rank's optimizer owns.
std::string MatrixRun::own_state(TrainingRuntime& runtime) const {
  Sha256 hash;
  for (const ShardedUnit& unit : runtime.engine().units()) {
    if (!unit.has_gradients()) continue;
    const OptimizerShard shard = unit.shard();
    const auto add = [&](const Tensor& t) {
      if (!t.empty()) hash.add(t.data, static_cast<size_t>(t.bytes()));
    };
    add(shard.p);
    for (const Tensor& t : shard.state) add(t);
    add(shard.copy);
  }
  return hash.hex();
}

bool MatrixRun::all_skip_when(int one_rank, const Config& config, StreamOrder order) {
  const RunSetup setup = set_up(config, world_.size());
  const Data batches = data(setup);
  TrainingRuntime runtime(setup, world_, {.order = order, .commit = {.poison = true}});
  runtime.engine().initialize();
  LossScale scale(setup.compute, "dynamic");
  const auto finite = [&](int number, double loss_scale) {
    const StepResult r = runtime.engine().step(batches, {.data_step = number,
                                                         .update = number + 1,
                                                         .lr = setup.config.optimizer.lr,
                                                         .loss_scale = loss_scale,
                                                         .targets = batches.target_count(number)});
    scale.update(r.finite);
    return r.finite;
  };
  constexpr double kFine = 1024;
  bool held = finite(0, kFine);  // no early return: all ranks must make the same collective calls
  const std::string before = own_state(runtime), weights_before = weights_hash(runtime.engine(), world_);
  const double scale_before = scale.value();
  held = !finite(1, world_.rank() == one_rank ? kTooMuch : kFine) && held;
  held = held && own_state(runtime) == before && scale.value() == scale_before / 2;
  held = weights_hash(runtime.engine(), world_) == weights_before && held;
  held = finite(2, kFine) && held && own_state(runtime) != before;
  held = (weights_hash(runtime.engine(), world_) != weights_before || world_.rank() != 0) && held;
  double sum = 0;
  for (const double rank : world_.all_gather(std::vector<double>{held ? 1.0 : 0.0})) sum += rank;
  return sum == world_.size();
}

}  // namespace flatshard::test
