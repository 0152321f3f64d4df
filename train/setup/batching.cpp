#include "train/setup/batching.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "runtime/check.h"

namespace flatshard {
namespace {

// The (total batch, batch per device) pairs nearest to the given one that divide evenly over the ranks.
std::string nearest_batches(int64_t total, int64_t per_device, int ranks) {
  std::string text;
  const auto add = [&](int64_t t, int64_t b) {
    text += str(text.empty() ? "" : ", or ", "total_batch_size = ", t, " with batch_size_per_device = ", b,
                " (", t / (b * ranks), " micro-steps)");
  };
  const int64_t step = per_device * ranks, below = total / step * step;
  if (below > 0) add(below, per_device);
  add(below + step, per_device);
  if (total % ranks == 0)
    for (int64_t b = std::min(per_device, total / ranks); b >= 1; --b)
      if ((total / ranks) % b == 0) {
        add(total, b);
        break;
      }
  return text;
}

}  // namespace

bool Batching::same_bits_anywhere() const {
  return std::has_single_bit(static_cast<uint64_t>(ranks)) &&
         std::has_single_bit(static_cast<uint64_t>(lanes)) &&
         std::has_single_bit(static_cast<uint64_t>(micro_steps));
}

Batching batching_of(const TrainConfig& c, int ranks) {
  const int64_t per_device = c.batch_size_per_device;
  check(c.total_batch_size > 0, "train.total_batch_size is ", c.total_batch_size, ", must be positive");
  check(per_device <= c.total_batch_size / ranks && c.total_batch_size % (per_device * ranks) == 0,
        "train.total_batch_size = ", c.total_batch_size,
        " is not a multiple of batch_size_per_device = ", per_device, " times ", ranks, " ranks: use ",
        nearest_batches(c.total_batch_size, per_device, ranks));
  const int64_t lane = c.lane_size == 0 ? per_device : c.lane_size;
  check(per_device % lane == 0, "train.batch_size_per_device = ", per_device,
        " is not a multiple of train.lane_size = ", lane);
  return {.total_sequences = c.total_batch_size,
          .lane_sequences = lane,
          .ranks = ranks,
          .lanes = per_device / lane,
          .micro_steps = c.total_batch_size / (per_device * ranks)};
}

int64_t total_steps(const Config& config, int64_t steps_per_epoch) {
  const TrainConfig& c = config.train;
  check((c.steps > 0) != (c.epochs > 0), "train.steps = ", c.steps, " and train.epochs = ", c.epochs,
        ": set exactly one of them above 0");
  const double steps =
      c.steps > 0 ? static_cast<double>(c.steps) : std::ceil(c.epochs * static_cast<double>(steps_per_epoch));
  check(steps <= kMostSteps, "train.epochs = ", c.epochs, " at ", steps_per_epoch, " steps per epoch is ",
        steps, " steps, must be at most ", kMostSteps);
  check_warmup(config.schedule, static_cast<int64_t>(steps));
  return static_cast<int64_t>(steps);
}

int64_t steps_between(double every, int64_t total, const char* key) {
  if (every == 0) return 0;
  if (every < 1) return static_cast<int64_t>(std::ceil(every * static_cast<double>(total)));
  check(every == std::floor(every), key, " is ", every,
        ", must be a whole number of steps, or a fraction of the run below 1");
  return static_cast<int64_t>(every);
}

}  // namespace flatshard
