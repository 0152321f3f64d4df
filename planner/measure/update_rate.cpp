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
  const auto allocate = [&]() -> AdamW {
    return {.p = arena.alloc(DType::f32, {kParameters}),
            .m = arena.alloc(DType::f32, {kParameters}),
            .v = arena.alloc(DType::f32, {kParameters}),
            .copy = arena.alloc(DType::bf16, {kParameters}),
            .g = arena.alloc(DType::f32, {kParameters}),
            .grad_scale = arena.alloc(DType::f32, {1}),
            .skip = {},
            .lr = 1e-3,
            .decay_end = kParameters,
            .step = 1};
  };
  allocate();
  arena.commit();
  const AdamW update = allocate();
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("update");
  for (const Tensor& tensor : {update.p, update.m, update.v, update.g, update.copy, update.grad_scale})
    zero(stream, tensor);
  adamw(stream, update);
  world.barrier("measuring updates");
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double bytes = 0, seconds = 0;
  while (seconds < kSeconds) {
    adamw(stream, update);
    bytes += min_bytes(update);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return bytes / seconds;
}

}  // namespace flatshard
