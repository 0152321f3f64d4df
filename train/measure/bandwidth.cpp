#include "train/measure/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "comm/communicator.h"
#include "runtime/arena.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

constexpr int64_t kFloats = 1 << 20;  // per rank
constexpr int kRounds = 6;

// The time that the slowest rank takes for `call` on a buffer of floats, in the best of a few rounds. The
// buffer has one part for each rank; `part` is memory for another.
using Call = std::function<void(Communicator& comm, Stream& on, const Tensor& full, const Tensor& part)>;
double best_seconds(World& world, const RunSetup& setup, int64_t floats_per_rank, const Call& call) {
  const std::unique_ptr<Communicator> comm =
      make_communicator(world, "bandwidth", 0, setup.transport, setup.device);
  Arena arena("bandwidth", Device::cpu(), Placement::pinned);
  StreamGroup planning(setup.device, {.planning = true}), streams(setup.device);
  Stream& stream = streams.add("bandwidth", StreamRole::comm);
  const int64_t floats = floats_per_rank * world.size();
  const Memory memory(setup.device, (floats + floats_per_rank) * size_of(DType::f32));
  const Tensor all{memory.data(), DType::f32, {floats + floats_per_rank}, setup.device},
      full = all.slice(0, floats), part = all.slice(floats, floats + floats_per_rank);
  call(*comm, planning.add("bandwidth", StreamRole::comm), full, part);
  comm->reserve_workspace(arena);
  arena.commit();
  comm->reserve_workspace(arena);
  zero(stream, all);
  stream.sync();
  double best = INFINITY;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier("bandwidth");
    const auto begin = std::chrono::steady_clock::now();
    call(*comm, stream, full, part);
    stream.sync();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::vector<double> all_seconds = world.all_gather({&seconds, 1}, "bandwidth");
    best = std::min(best, *std::max_element(all_seconds.begin(), all_seconds.end()));
  }
  return best;
}

double rate_of(const Call& call, const RunSetup& setup, World& world) {
  const double seconds = best_seconds(world, setup, kFloats, call);
  return static_cast<double>(kFloats * (world.size() - 1) * size_of(DType::f32)) / seconds;
}

}  // namespace

Bandwidth bandwidth_of(const RunSetup& setup, World& world) {
  const double stated = setup.config.parallel.bandwidth_gbps * 1e9;
  if (stated > 0 || world.size() == 1) return {.bytes_per_second = stated};
  const auto gather = [&](Communicator& comm, Stream& on, const Tensor& full, const Tensor&) {
    comm.all_gather(on, full, part_of(full, world.rank(), world.size()), "bandwidth");
  };
  return {.bytes_per_second = rate_of(gather, setup, world), .measured = true};
}

double reduce_rate(const RunSetup& setup, World& world) {
  const auto reduce = [](Communicator& comm, Stream& on, const Tensor& full, const Tensor& part) {
    comm.reduce_scatter(on, part, full, "bandwidth");
  };
  return rate_of(reduce, setup, world);
}

double all_reduce_seconds(const RunSetup& setup, World& world, int64_t bytes) {
  const int64_t floats = std::max<int64_t>(1, bytes / size_of(DType::f32) / world.size());
  return best_seconds(world, setup, floats,
                      [](Communicator& comm, Stream& on, const Tensor& full, const Tensor& part) {
                        comm.reduce_scatter(on, part, full, "all-reduce");
                        comm.all_gather(on, full, part, "all-reduce");
                      });
}

double tokens_to_hide(double bytes, double bytes_per_second, double rank_peak, double flops_per_token) {
  return bytes / bytes_per_second * rank_peak / flops_per_token;
}

}  // namespace flatshard
