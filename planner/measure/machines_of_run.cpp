#include <algorithm>
#include <unistd.h>

#include "planner/measure/measured_machines.h"
#include "planner/times/op_times.h"
#include "runtime/host_memory.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

// The time of a message between processes of a host, and between hosts over TCP: assumed.
constexpr double kMessageUs = 10, kNetworkMessageUs = 60;

// The number of processors that a rank has to itself. It may be allowed to use all of its host, but so are
// the other ranks there.
double processors_of_rank(int ranks) {
  return std::min<double>(usable_processors(), static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)) / ranks);
}

// Sets the measured bandwidth, which is the rate of the slowest part of the way.
void set_bandwidth(Cluster& c, const RankLayout& layout, double bytes_per_second) {
  if (bytes_per_second <= 0) return;
  const double gbps = bytes_per_second * 1e-9;
  if (!layout.spans_hosts()) {
    c.link_gbps = gbps;
    c.link_efficiency = 1;
    return;
  }
  c.nics_per_node = 1;
  c.nic_gbps = gbps;
  c.nic_efficiency = 1;
  c.tiers.clear();
}

// Other programs may have used the machine while the peak was measured, and not while ops were timed: the
// peak is at least the rate of every product, and of the products in attention.
double peak_of_products(const MeasuredRates& rates) {
  double peak = rates.products;
  for (const TimedOp& timed : rates.ops)
    if ((is_product(timed.op.name) || is_attention(timed.op.name)) && timed.seconds > 0)
      peak = std::max(peak, work_of(timed.op, 0) / timed.seconds);
  return peak;
}

Cluster processors_of_run(const MeasuredRates& rates, int ranks) {
  Cluster c{.source = "the CPU"};
  c.gpu.name = "cpu";
  c.gpu.memory_mib = (available_host_bytes() >> 20) / ranks;
  c.cpu = CpuRates{.products = peak_of_products(rates),
                   .copies = rates.copies,
                   .reduces = rates.reduced,
                   .taken_by_exchange = taken_by_exchange(thread_count(), processors_of_rank(ranks)),
                   .ops = rates.ops};
  c.gpu.memory_gbps = rates.copies * 1e-9;
  c.nvlink = false;
  c.link_step_us = kMessageUs;
  c.network_step_us = kNetworkMessageUs;
  c.link_efficiency = c.nic_efficiency = 1;
  c.link_gbps = c.nic_gbps = c.host_gbps = c.update_gbps = rates.copies * 1e-9;
  c.nics_per_node = 1;
  return c;
}

}  // namespace

double taken_by_exchange(int threads, double processors) {
  return std::clamp((threads + 1 - processors) / threads, 0.0, 1.0);
}

double slowed_by_sharing(int threads, double processors) { return std::max(1.0, threads / processors); }

double slowed_by_sharing(const RankLayout& layout) {
  return slowed_by_sharing(thread_count(), processors_of_rank(layout.ranks_on_first_host()));
}

std::optional<Cluster> machines_of_run(const RunSetup& setup, const std::string& gpu,
                                       const MeasuredRates& rates) {
  std::optional<Cluster> machines;
  if (setup.device.is_cuda()) {
    const GpuModel* const model = gpu_model_of_device(gpu);
    if (!model) return {};
    machines = usual_cluster(*model);
    // The peak is set so that the largest products have the measured rate.
    const double published = published_matrix_rate(*model, setup.compute, setup.config.precision.tf32);
    machines->gpu.matrix_tflops *= rates.products / (published * most_of_matrix_peak());
    if (rates.updates > 0) machines->update_gbps = rates.updates * 1e-9;
  } else {
    if (rates.ops.empty()) return {};
    machines = processors_of_run(rates, setup.ranks_on_first_host());
  }
  machines->node_gpus = setup.ranks_on_first_host();
  set_bandwidth(*machines, setup, rates.exchanged);
  machines->jitter_fixed = machines->jitter_step = 0;  // the measured rates include it
  return machines;
}

}  // namespace flatshard
