#include "tests/runtime/small_trainer.h"

#include <limits>

#include "kernels/adamw.h"
#include "kernels/rmsnorm.h"

namespace flatshard::test {
namespace {

constexpr int64_t kSize = 64;  // of a layer
constexpr float kStale = std::numeric_limits<float>::quiet_NaN();

}  // namespace

SmallTrainer::SmallTrainer(Device device, StreamOptions options, int left_out)
    : left_out_(left_out),
      streams_(device, options),
      compute_(streams_.add("compute")),
      gather_(streams_.add("gather", StreamRole::comm)),
      reduce_(streams_.add("reduce", StreamRole::comm)) {
  for (size_t u = 0; u < kUnits; ++u) {
    shard_[u] = make(kSize, 1.0f + 0.25f * static_cast<float>(u), 0.125f);
    m_[u] = make(kSize, 0.0f);
    v_[u] = make(kSize, 0.0f);
    gradient_[u] = make(kSize, 0.0f);
    result_[u] = make(kSize, kStale);
  }
  for (Tensor& x : x_) x = make(kSize, 1.0f, -0.0625f);
  for (Tensor& slot : slot_) slot = make(kSize, kStale);
  for (Tensor& slot : gradient_slot_) slot = make(kSize, kStale);
  stale_ = make(kSize, kStale);
  rstd_ = make(1, 0.0f);
  one_ = make(1, 1.0f);
}

// value, value + step, ...
Tensor SmallTrainer::make(int64_t size, float value, float step) {
  const Device device = streams_.device();
  memory_.emplace_back(device, size * int64_t{sizeof(float)});
  const Tensor t{memory_.back().data(), DType::f32, {size}, device};
  std::vector<float> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value + step * static_cast<float>(i);
  copy(compute_, t, tensor_of(values.data(), {size}));
  compute_.sync();
  return t;
}

std::vector<float> SmallTrainer::train() {
  for (int step = 1; step <= kSteps; ++step) {
    for (int u = 0; u < kUnits; ++u) forward(u);
    for (int u = kUnits; u-- > 0;) backward(u);
    update(step);
  }
  wait(10, gather_, updated_);
  for (size_t u = 0; u < kUnits; ++u) copy(gather_, result_[u], shard_[u]);
  record(11, gather_, read_);
  compute_.wait(read_);
  std::vector<float> shards(kUnits * kSize);
  for (size_t u = 0; u < kUnits; ++u) copy(compute_, tensor_of(&shards[u * kSize], {kSize}), result_[u]);
  compute_.sync();
  streams_.sync_all();
  return shards;
}

// Gathers the unit and returns the index of its slot.
int SmallTrainer::gather(int unit) {
  const int s = turn_++ % kSlots;
  wait(0, gather_, slot_free_[s]);
  wait(10, gather_, updated_);
  copy(gather_, slot_[s], shard_[unit]);
  record(1, gather_, gathered_[s]);
  wait(2, compute_, gathered_[s]);
  return s;
}

void SmallTrainer::forward(int unit) {
  const int s = gather(unit);
  rmsnorm_forward(compute_, {.y = x_[unit + 1], .rstd = rstd_, .x = x_[unit], .w = slot_[s], .eps = 1e-5f});
  copy(compute_, slot_[s], stale_);
  record(4, compute_, slot_free_[s]);
}

void SmallTrainer::backward(int unit) {
  const int s = gather(unit);
  wait(3, compute_, gradient_free_[s]);
  rmsnorm_forward(compute_,
                  {.y = gradient_slot_[s], .rstd = rstd_, .x = x_[unit + 1], .w = slot_[s], .eps = 1e-5f});
  copy(compute_, slot_[s], stale_);
  record(4, compute_, slot_free_[s]);
  record(5, compute_, gradient_ready_[s]);

  wait(6, reduce_, gradient_ready_[s]);
  copy(reduce_, gradient_[unit], gradient_slot_[s]);
  copy(reduce_, gradient_slot_[s], stale_);
  record(7, reduce_, gradient_free_[s]);
  record(7, reduce_, reduced_);
}

void SmallTrainer::update(int step) {
  wait(8, compute_, reduced_);
  for (size_t u = 0; u < kUnits; ++u)
    adamw(compute_,
          {.shard = {.p = shard_[u], .copy = {}, .g = gradient_[u], .state = {m_[u], v_[u]}, .decay_end = 0},
           .grad_scale = one_,
           .skip = {},
           .lr = 0.05,
           .beta1 = 0.9,
           .beta2 = 0.999,
           .step = step});
  record(9, compute_, updated_);
}

void SmallTrainer::record(int site, Stream& stream, Event& event) {
  if (site != left_out_) stream.record(event);
}
void SmallTrainer::wait(int site, Stream& stream, const Event& event) {
  if (site != left_out_) stream.wait(event);
}

}  // namespace flatshard::test
