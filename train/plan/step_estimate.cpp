#include "train/plan/step_estimate.h"

#include <algorithm>
#include <cmath>

#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr double kShareOfMatrixPeak = 0.5, kShareOfBandwidth = 0.8;
constexpr double kHostUpdateGbps = 20;  // of one rank's update in host memory
constexpr double kNetworkGbps = 50;     // 400 Gbit/s for each GPU
constexpr int64_t kUpdateBytes = 14;    // per element, without the state: p both ways, the gradient, the copy

// The bytes of an element's state, or of the part that pages; scales of blocks hardly count.
int64_t state_bytes(const OptimizerKind& optimizer, bool pages) {
  int64_t bytes = 0;
  for (const StateSpec& state : optimizer.states())
    if (state.block == 1 && (state.pages || !pages)) bytes += size_of(state.dtype);
  return bytes;
}

double seconds_for(double bytes, double gbps) { return bytes / (gbps * 1e9 * kShareOfBandwidth); }

double link_gbps(const RunSetup& setup, const GpuModel& gpu) {
  const double stated = setup.config.parallel.bandwidth_gbps;
  return stated > 0 ? stated : gpu.link_gbps;
}

double network_gbps(const RunSetup& setup, const GpuModel& gpu) {
  return std::min(kNetworkGbps, link_gbps(setup, gpu));
}

// Inside a host, then between hosts.
double exchange_seconds(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu) {
  const Bytes bytes = plan.units.bytes();
  return seconds_for(static_cast<double>(bytes.inside), link_gbps(setup, gpu)) +
         seconds_for(static_cast<double>(bytes.between), network_gbps(setup, gpu));
}

double matrix_flops(const RunSetup& setup, const GpuModel& gpu) {
  return published_matrix_rate(gpu, setup.compute, setup.config.precision.tf32);
}

double products_seconds(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu) {
  const Batching& b = setup.batching;
  const double tokens = static_cast<double>(b.micro_steps * b.lanes * b.lane_sequences * setup.seq_len());
  const double again = setup.config.train.recompute ? plan.flops.forward : 0;
  return tokens * (plan.flops.causal + again) / (matrix_flops(setup, gpu) * kShareOfMatrixPeak);
}

double parameter_bytes(const RunPlan& plan) {
  for (const MemoryRow& row : plan.memory)
    if (row.name == "parameters") return static_cast<double>(row.bytes);
  return 0;
}

// Elements that this rank updates.
double updated_elements(const RunSetup& setup, const RunPlan& plan) {
  const int parts = setup.units.policy.optimizer ? setup.groups.size : 1;
  return static_cast<double>(plan.trainable) / parts;
}

double transfer_seconds(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu) {
  const double elements = updated_elements(setup, plan);
  double bytes = 0;
  if (setup.units.offload)  // parameters arrive for both passes, then gradients leave
    bytes = static_cast<double>(setup.batching.micro_steps) * (2 * parameter_bytes(plan) + 4 * elements);
  else if (setup.units.page_state_from)
    bytes = elements * static_cast<double>(state_bytes(*setup.units.optimizer, true));
  return seconds_for(bytes, gpu.host_gbps);
}

double update_seconds(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu) {
  const double bytes = updated_elements(setup, plan) *
                       static_cast<double>(kUpdateBytes + 2 * state_bytes(*setup.units.optimizer, false));
  return seconds_for(bytes, setup.units.offload ? kHostUpdateGbps : gpu.memory_gbps);
}

}  // namespace

double StepEstimate::seconds() const { return std::max({products, exchange, transfer}) + update; }

StepEstimate estimate_step(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu) {
  return {.products = products_seconds(setup, plan, gpu),
          .exchange = exchange_seconds(setup, plan, gpu),
          .transfer = transfer_seconds(setup, plan, gpu),
          .update = update_seconds(setup, plan, gpu)};
}

std::string describe_estimate(const StepEstimate& e, const RunSetup& setup, const GpuModel& gpu) {
  const auto part = [](const char* name, double seconds) {
    return seconds > 0 ? str(", ", name, ' ', human_seconds(seconds)) : "";
  };
  const double tokens = static_cast<double>(setup.batching.total_sequences * setup.seq_len());
  return str("estimate  ", human_seconds(e.seconds()), " per step, ", human_count(tokens / e.seconds()),
             " tok/s: products ", human_seconds(e.products), part("exchange", e.exchange),
             part("transfers to and from the host", e.transfer), part("update", e.update),
             "\n          not measured; from published figures, assuming half of ",
             std::round(matrix_flops(setup, gpu) * 1e-12), " TFLOP/s and 80 % of ", gpu.memory_gbps,
             " GB/s of memory",
             setup.groups.ranks > 1 ? str(" and ", link_gbps(setup, gpu), " GB/s between ranks") : "",
             setup.spans_hosts() ? str(", ", network_gbps(setup, gpu), " GB/s between hosts") : "",
             "; exchange and transfers overlap the products\n");
}

}  // namespace flatshard
