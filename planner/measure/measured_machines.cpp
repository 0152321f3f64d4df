#include "planner/measure/measured_machines.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <vector>

#include "kernels/adamw.h"
#include "runtime/arena.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/stream.h"

namespace flatshard {
namespace {

// The rate of work that reads and writes `bytes` each time, repeated for `seconds` after a first time.
template <class Work>
double bytes_per_second(double bytes, double seconds, Work&& work) {
  work();
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double moved = 0, elapsed = 0;
  while (elapsed < seconds) {
    work();
    moved += bytes;
    elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return moved / elapsed;
}

// The memory rate of a CPU, by a copy that does not fit into the caches.
double rate_of_copies() {
  constexpr int64_t kFloats = 8 << 20;
  const Device device = Device::cpu();
  Arena arena("copy", device);
  const auto buffers = [&] { return arena.alloc(DType::f32, {2 * kFloats}); };
  buffers();
  arena.commit();
  const Tensor both = buffers(), from = both.slice(0, kFloats), to = both.slice(kFloats, 2 * kFloats);
  StreamSet streams(device);
  Stream& stream = streams.add("copy");
  zero(stream, both);
  return bytes_per_second(2.0 * kFloats * size_of(DType::f32), 0.03, [&] {
    copy(stream, to, from);
    stream.sync();
  });
}

// The rate of this rank while all ranks copy.
double copy_rate(World& world) {
  world.barrier("measuring copies");
  // The rate is cached for processes that train many times, as tests do.
  static std::map<int, double> known;
  double& rate = known[thread_count()];
  if (rate == 0) rate = rate_of_copies();
  return rate;
}

// The rate of AdamW on all threads of this rank, in the host's memory, while all ranks update.
double update_rate(World& world) {
  constexpr int64_t kParameters = 8 << 20;  // 144 MB, more than most caches hold
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
  const OptimizerShard& shard = update.shard;
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("update");
  for (const Tensor& tensor :
       {shard.p, shard.copy, shard.g, shard.state[0], shard.state[1], update.grad_scale})
    zero(stream, tensor);
  world.barrier("measuring updates");
  return bytes_per_second(min_bytes(shard), 0.05, [&] { adamw(stream, update); });
}

// Ranks that share processors time their ops in turns, in each of which every rank has processors of its own.
// If all ranks timed at once, an op that ends before the system gives its processor to another rank would
// seem to share nothing.
std::vector<TimedOp> time_ops_in_turn(const RunSetup& setup, World& world, double products) {
  const double slowed = slowed_by_sharing(setup);
  const std::vector<double> all_slowed = world.all_gather({&slowed, 1}, "timing ops");
  const auto turns = static_cast<int>(std::ceil(*std::max_element(all_slowed.begin(), all_slowed.end())));
  const auto mine = setup.hosts.begin() + world.rank();
  const auto earlier = std::count(setup.hosts.begin(), mine, *mine);
  std::vector<TimedOp> ops;
  std::exception_ptr failure;  // rethrown when the other ranks have had their turns, too
  for (int turn = 0; turn < turns; ++turn) {
    world.barrier("timing ops");
    if (earlier % turns != turn) continue;
    try {
      ops = time_ops(setup, products * slowed);  // `products` was measured on all ranks at once
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  for (TimedOp& op : ops) op.seconds *= slowed;
  return ops;
}

}  // namespace

std::optional<Cluster> measured_machines(const RunSetup& setup, World& world, const MatrixPeak& peak,
                                         const Bandwidth& bandwidth) {
  const bool on_cpu = !setup.device.is_cuda();
  MeasuredRates rates{.products = peak.measured / world.size(), .exchanged = bandwidth.bytes_per_second};
  if (on_cpu) rates.copies = copy_rate(world);
  if (!on_cpu && setup.config.parallel.offload) rates.updates = update_rate(world);
  if (on_cpu && bandwidth.measured) rates.reduced = reduce_rate(setup, world);
  if (on_cpu) rates.ops = time_ops_in_turn(setup, world, rates.products);
  return machines_of_run(setup, peak.gpu, rates);
}

}  // namespace flatshard
