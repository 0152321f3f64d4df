#include "planner/simulate/simulated_step.h"

#include <algorithm>
#include <cmath>

#include "planner/simulate/step_rows.h"

namespace flatshard {
namespace {

// The part to which a wait of compute counts, by the name of the stream that it waits for.
double& waited(StepParts& parts, const std::string& stream) {
  if (stream == "gather") return parts.gathers;
  if (stream == "reduce") return parts.reductions;
  if (stream.starts_with("copy")) return parts.copies;
  if (stream.starts_with("send") || stream.starts_with("receive")) return parts.stages;
  return parts.launches;
}

StepParts parts_of(const StepRow& row, const std::vector<ReplayTimes>& times) {
  StepParts parts;
  double last = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const ReplayItem& item = row.replay.items[i];
    if (item.stream != row.compute || item.kind == ReplayItem::Kind::record) continue;
    const auto [begin, end] = times[i];
    if (item.kind == ReplayItem::Kind::wait) {
      const auto number = static_cast<size_t>(item.number);
      const int on = number < row.stream_of_record.size() ? row.stream_of_record[number] : -1;
      if (on >= 0 && end > last)
        waited(parts, row.recording.streams()[static_cast<size_t>(on)].name) += end - last;
    } else {
      parts.launches += std::max(0.0, begin - last);
      double& part = item.use == Use::host                                    ? parts.host
                     : item.use == Use::to_device || item.use == Use::to_host ? parts.copies
                     : row.parts[i] == StepPart::experts                      ? parts.experts
                     : item.use == Use::links || item.use == Use::network     ? parts.reductions
                     : row.parts[i] == StepPart::update                       ? parts.update
                     : row.parts[i] == StepPart::products                     ? parts.products
                     : row.parts[i] == StepPart::attention                    ? parts.attention
                                                                              : parts.others;
      part += end - begin;
    }
    last = std::max(last, end);
  }
  return parts;
}

double work_of(const StepParts& parts) {
  return parts.products + parts.attention + parts.others + parts.update;
}

// The sum a + factor (b - a) of every part, not below 0.
StepParts extended(const StepParts& a, const StepParts& b, double factor) {
  StepParts sum;
  for (const auto part : {&StepParts::products, &StepParts::attention, &StepParts::others, &StepParts::update,
                          &StepParts::gathers, &StepParts::reductions, &StepParts::experts,
                          &StepParts::stages, &StepParts::copies, &StepParts::host, &StepParts::launches})
    sum.*part = std::max(0.0, a.*part + factor * (b.*part - a.*part));
  return sum;
}

struct Played {
  double seconds = 0, exchanged = 0;
  double slower = 0;  // seconds if all kernels take kSlower times as long
  StepParts parts{};
};
constexpr double kSlower = 1.02;

Played play(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  std::vector<StepRow> rows = step_rows(setup, cluster, profile);
  const Replayed played = replay_rows(rows);
  Played result{.seconds = end_of_step(rows, played)};
  double most = -1;
  for (size_t r = 0; r < rows.size(); ++r) {
    const StepParts parts = parts_of(rows[r], played.times[r]);
    if (work_of(parts) <= most) continue;
    most = work_of(parts);
    result.parts = parts;
    result.exchanged = 0;
    for (const ReplayItem& item : rows[r].replay.items)
      if (item.use == Use::links || item.use == Use::network) result.exchanged += item.seconds;
  }
  for (StepRow& row : rows)
    for (ReplayItem& item : row.replay.items)
      if (item.use == Use::kernels) item.seconds *= kSlower;
  result.slower = end_of_step(rows, replay_rows(rows));
  return result;
}

// The z that a standard normal number exceeds with probability q.
double upper_quantile(double q) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > q ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The distance of the slowest of n ranks from the median, at the quantile u of steps, in standard deviations.
// The logarithm of a rank's time is normally distributed, so that no time is negative.
double slowest_of(double n, double u) { return upper_quantile(-std::expm1(std::log(u) / n)); }

}  // namespace

double StepParts::sum() const {
  return products + attention + others + update + gathers + reductions + experts + stages + copies + host +
         launches;
}

SimulatedStep simulate_step(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  const Cluster shared = shared_bus(setup, cluster);
  const int64_t all = setup.batching.micro_steps, stages = setup.pipeline.stages;
  constexpr int64_t kLongLane = 8;  // the end of a longer lane hardly counts
  const int64_t lane = setup.batching.lane_steps > kLongLane ? 1 : setup.batching.lane_steps;
  // A round is the number of micro-steps after which a schedule or a lane repeats.
  const int64_t round = std::max(stages, lane), first = std::max<int64_t>(2, round),
                second = first + std::max<int64_t>(1, round);
  SimulatedStep step;
  double slower = 0;
  if (all <= second) {
    const Played whole = play(setup, shared, profile);
    step.seconds = whole.seconds, step.exchanged = whole.exchanged, step.parts = whole.parts;
    slower = whole.slower;
  } else {
    const Played a = play(with_micro_steps(setup, first), shared, profile),
                 b = play(with_micro_steps(setup, second), shared, profile);
    const double factor = static_cast<double>(all - first) / static_cast<double>(second - first);
    const auto extend = [&](double from, double to) { return from + factor * (to - from); };
    step.seconds = extend(a.seconds, b.seconds);
    step.exchanged = extend(a.exchanged, b.exchanged);
    slower = extend(a.slower, b.slower);
    step.parts = extended(a.parts, b.parts, factor);
  }
  // The part of the step that is slowed as much as the kernels. Slower kernels may happen to help or delay an
  // exchange, but on average no step ends earlier for it, or is slowed more than the kernels.
  const double part = std::clamp((slower - step.seconds) / (kSlower - 1), 0.0, step.seconds),
               deviation = std::hypot(cluster.jitter_fixed, cluster.jitter_step);
  const auto at = [&](double u) {
    return step.seconds + part * std::expm1(deviation * slowest_of(setup.ranks(), u));
  };
  step.p10 = at(0.1), step.p50 = at(0.5), step.p90 = at(0.9);
  return step;
}

}  // namespace flatshard
