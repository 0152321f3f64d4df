#include "train/measure/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "comm/communicator.h"
#include "runtime/arena.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

constexpr int64_t kFloats = 1 << 20;  // per rank
constexpr int kRounds = 6;

double measured_rate(World& world, const RunSetup& setup) {
  const std::unique_ptr<Communicator> comm =
      make_communicator(world, "bandwidth", 0, setup.transport, setup.device);
  Arena arena("bandwidth", Device::cpu(), Placement::pinned);
  StreamGroup planning(setup.device, {.planning = true}), streams(setup.device);
  Stream& stream = streams.add("gather", StreamRole::comm);
  const Memory memory(setup.device, kFloats * world.size() * size_of(DType::f32));
  const Tensor full{memory.data(), DType::f32, {kFloats * world.size()}, setup.device};
  const auto gather = [&](Stream& on) {
    comm->all_gather(on, full, part_of(full, world.rank(), world.size()), "bandwidth");
  };
  gather(planning.add("gather", StreamRole::comm));
  comm->reserve_workspace(arena);
  arena.commit();
  comm->reserve_workspace(arena);
  zero(stream, full);
  stream.sync();
  double best = INFINITY;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier("bandwidth");
    const auto begin = std::chrono::steady_clock::now();
    gather(stream);
    stream.sync();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::vector<double> all = world.all_gather({&seconds, 1}, "bandwidth");
    best = std::min(best, *std::max_element(all.begin(), all.end()));
  }
  return static_cast<double>(kFloats * (world.size() - 1) * size_of(DType::f32)) / best;
}

}  // namespace

Bandwidth bandwidth_of(const RunSetup& setup, World& world) {
  const double stated = setup.config.parallel.bandwidth_gbps * 1e9;
  if (stated > 0 || world.size() == 1) return {.bytes_per_second = stated};
  return {.bytes_per_second = measured_rate(world, setup), .measured = true};
}

double tokens_to_hide(double bytes, double bytes_per_second, double rank_peak, double flops_per_token) {
  return bytes / bytes_per_second * rank_peak / flops_per_token;
}

}  // namespace flatshard
