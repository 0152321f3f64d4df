#include "train/setup/batching.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>
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
         std::has_single_bit(static_cast<uint64_t>(micro_steps / lane_steps));
}

int64_t lane_size_of(const Config& config, int ranks) {
  const TrainConfig& c = config.train;
  if (c.lane_size > 0) return c.lane_size;
  return ranks == 1 && !config.parallel.offload ? c.total_batch_size : c.batch_size_per_device;
}

Batching batching_of(const TrainConfig& c, int64_t lane_size, int ranks) {
  const int64_t per_device = c.batch_size_per_device;
  check(c.total_batch_size > 0, "train.total_batch_size is ", c.total_batch_size, ", must be positive");
  check(per_device <= c.total_batch_size / ranks && c.total_batch_size % (per_device * ranks) == 0,
        "train.total_batch_size = ", c.total_batch_size,
        " is not a multiple of batch_size_per_device = ", per_device, " times ", ranks, " ranks: use ",
        nearest_batches(c.total_batch_size, per_device, ranks));
  const int64_t together = std::min(lane_size, per_device), of_rank = c.total_batch_size / ranks;
  check(per_device % together == 0, "train.batch_size_per_device = ", per_device,
        " is not a multiple of train.lane_size = ", lane_size);
  check(lane_size % together == 0, "train.lane_size = ", lane_size,
        " is not a multiple of train.batch_size_per_device = ", per_device);
  check(of_rank % lane_size == 0, "train.lane_size = ", lane_size, ", but a rank computes ", of_rank,
        " sequences: it must divide them");
  return {.total_sequences = c.total_batch_size,
          .lane_sequences = together,
          .ranks = ranks,
          .lanes = per_device / together,
          .micro_steps = of_rank / per_device,
          .lane_steps = lane_size / together};
}

void check_length(const TrainConfig& c) {
  check((c.steps > 0) != (c.epochs > 0), "train.steps = ", c.steps, " and train.epochs = ", c.epochs,
        ": set exactly one of them above 0");
}

int64_t total_steps(const Config& config, double steps_of_epochs) {
  const TrainConfig& c = config.train;
  check_length(c);
  const double steps = c.steps > 0 ? static_cast<double>(c.steps) : steps_of_epochs;
  check(steps <= kMostSteps, "train.epochs = ", c.epochs, " is ", steps, " steps, must be at most ",
        kMostSteps);
  check_schedule(config.schedule, static_cast<int64_t>(steps));
  return static_cast<int64_t>(steps);
}

namespace {

SaveInterval parse_interval(const char* key, const std::string& text, const char* or_auto) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  double value = 0;
  const auto [rest, error] = std::from_chars(begin, end, value);
  const std::string_view unit(rest, end);
  const double seconds = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  check(error == std::errc{} && value >= 0 && value <= kMostSteps && (unit.empty() || seconds > 0), key,
        " is ", quoted(text), ", must be ", or_auto, "a number of steps from 0 to ", kMostSteps,
        ", a fraction of the run below 1, or a time such as \"30min\", \"2h\" or \"90s\"");
  return unit.empty() ? SaveInterval{.steps = value} : SaveInterval{.seconds = value * seconds};
}

}  // namespace

SaveInterval save_interval(const CheckpointConfig& c) {
  return parse_interval("checkpoint.save_every", c.save_every, "");
}

std::optional<SaveInterval> best_interval(const CheckpointConfig& c) {
  if (c.best_every == "auto") return {};
  return parse_interval("checkpoint.best_every", c.best_every, "\"auto\", ");
}

bool saves_by_steps(const CheckpointConfig& c) { return save_interval(c).steps > 0 || c.save_each_epoch; }

int64_t steps_between(double every, int64_t total, const char* key) {
  if (every == 0) return 0;
  if (every < 1) return static_cast<int64_t>(std::ceil(every * static_cast<double>(total)));
  check(every == std::floor(every), key, " is ", every,
        ", must be a whole number of steps, or a fraction of the run below 1");
  return static_cast<int64_t>(every);
}

}  // namespace flatshard
