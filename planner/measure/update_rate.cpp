#include "planner/measure/update_rate.h"

#include <chrono>

#include "kernels/adamw.h"
#include "runtime/arena.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace flatshard {
namespace {

constexpr int64_t kParameters = 8 << 20;  // 144 MB, more than most caches hold
constexpr double kSeconds = 0.05;

}  // namespace

double update_rate(World& world) {
  Arena arena("update rate", Device::cpu());
  const auto allocate = [&]() -> OptimizerUpdate {
    const auto floats = [&] { return arena.alloc(DType::f32, {kParameters}); };
    return {.shard = {.p = floats(),
                      .copy = arena.alloc(DType::bf16, {kParameters}),
                      .g = floats(),
                      .state = {floats(), floats()},
                      .decay_end = kParameters},
            .grad_scale = arena.alloc(DType::f32, {1}),
            .skip = {},
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .step = 1};
  };
  allocate();
  arena.commit();
  const OptimizerUpdate update = allocate();
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("update");
  const OptimizerShard& shard = update.shard;
  for (const Tensor& tensor :
       {shard.p, shard.copy, shard.g, shard.state[0], shard.state[1], update.grad_scale})
    zero(stream, tensor);
  adamw(stream, update);
  world.barrier("measuring updates");
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double bytes = 0, seconds = 0;
  while (seconds < kSeconds) {
    adamw(stream, update);
    bytes += min_bytes(shard);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return bytes / seconds;
}

}  // namespace flatshard
