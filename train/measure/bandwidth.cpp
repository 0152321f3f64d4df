#include "train/measure/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "runtime/arena.h"
#include "runtime/median.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

constexpr int64_t kMostFloats = 1 << 20;  // most floats per rank
constexpr int kRounds = 9;
// The buffers are larger than most caches, since a step rarely finds in them the data that it exchanges.
constexpr int64_t kBytes = 128 << 20;

// The floats of a rank in an exchange, as many as its part of a unit: small exchanges reach a third of the
// rate of large ones.
int64_t floats_of_unit(const RunSetup& setup, int ranks) {
  std::vector<int64_t> sizes;
  for (const ParamList& unit : setup.units_of_model->units()) sizes.push_back(unit.parameter_count());
  return std::clamp<int64_t>(median(std::move(sizes)) / ranks, 1, kMostFloats);
}

// The time that the slowest rank takes for `call`, the median of a few rounds. Each round has a buffer of its
// own, as far as kBytes reach: `full` has one part for each rank, and `part` is memory for another. On a GPU,
// whose memory a run may fill, all rounds share one.
using Call = std::function<void(Communicator& comm, Stream& on, const Tensor& full, const Tensor& part)>;
double median_seconds(World& world, const RunSetup& setup, int64_t floats_per_rank, const Call& call) {
  const std::unique_ptr<Communicator> comm =
      make_communicator(world, "bandwidth", 0, setup.transport, setup.device);
  Arena arena("bandwidth", Device::cpu(), Placement::pinned);
  StreamSet planning(setup.device, {.planning = true}), streams(setup.device);
  Stream& stream = streams.add("bandwidth", StreamRole::comm);
  const int64_t floats = floats_per_rank * world.size(), of_round = floats + floats_per_rank,
                bytes = of_round * size_of(DType::f32),
                buffers = setup.device.is_cuda() ? 1 : std::clamp<int64_t>(kBytes / bytes, 1, kRounds);
  const Memory memory(setup.device, buffers * bytes);
  const Tensor all{memory.data(), DType::f32, {buffers * of_round}, setup.device};
  const auto call_in = [&](int64_t buffer, Stream& on) {
    const Tensor both = all.slice(buffer * of_round, (buffer + 1) * of_round);
    call(*comm, on, both.slice(0, floats), both.slice(floats, of_round));
  };
  call_in(0, planning.add("bandwidth", StreamRole::comm));
  comm->reserve_workspace(arena);
  arena.commit();
  comm->reserve_workspace(arena);
  zero(stream, all);
  stream.sync();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier("bandwidth");
    const auto begin = std::chrono::steady_clock::now();
    call_in(round % buffers, stream);
    stream.sync();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::vector<double> all_seconds = world.all_gather({&seconds, 1}, "bandwidth");
    rounds.push_back(*std::max_element(all_seconds.begin(), all_seconds.end()));
  }
  return median(std::move(rounds));
}

double rate_of(const Call& call, const RunSetup& setup, World& world) {
  const int64_t floats = floats_of_unit(setup, world.size());
  const double seconds = median_seconds(world, setup, floats, call);
  return static_cast<double>(floats * (world.size() - 1) * size_of(DType::f32)) / seconds;
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
  return median_seconds(world, setup, floats,
                        [](Communicator& comm, Stream& on, const Tensor& full, const Tensor& part) {
                          comm.reduce_scatter(on, part, full, "all-reduce");
                          comm.all_gather(on, full, part, "all-reduce");
                        });
}

double tokens_to_hide(double bytes, double bytes_per_second, double rank_peak, double flops_per_token) {
  return bytes / bytes_per_second * rank_peak / flops_per_token;
}

}  // namespace flatshard
