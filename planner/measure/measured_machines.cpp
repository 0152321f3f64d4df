#include "planner/measure/measured_machines.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "planner/measure/copy_rate.h"
#include "planner/measure/machines_of_run.h"
#include "planner/measure/op_rates.h"
#include "planner/measure/update_rate.h"

namespace flatshard {
namespace {

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
