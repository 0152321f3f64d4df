#include "train/run/matrix_peak.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/gpu.h"
#include "train/measure/gpu_models.h"
#include "train/measure/peak.h"

namespace flatshard {
namespace {

// Roughly the least operations that the run needs: 6 for each parameter and token (model/flops.h).
double operations_of(const RunSetup& setup, int64_t steps) {
  int64_t parameters = 0;
  for (const ParamList& unit : setup.units_of_model->units()) parameters += unit.parameter_count();
  const int64_t tokens = setup.batching.total_sequences * setup.seq_len();
  return 6.0 * static_cast<double>(parameters) * static_cast<double>(tokens) * static_cast<double>(steps);
}

}  // namespace

MatrixPeak find_matrix_peak(const RunSetup& setup, World& world, std::optional<int64_t> steps) {
  const bool tf32 = setup.config.precision.tf32;
  const double operations = steps ? operations_of(setup, *steps) : INFINITY;
  MatrixPeak peak{.measured = matrix_peak(world, setup.device, setup.compute, tf32, operations),
                  .gpu = gpu_name(setup.device)};
  const GpuModel* const model = gpu_model_of_device(peak.gpu);
  if (model && (world.size() == 1 || setup.transport == Transport::nccl))
    peak.published = world.size() * published_matrix_rate(*model, setup.compute, tf32);
  return peak;
}

std::string MatrixPeak::set_mfu(StepMetrics& m, double tokens_per_second, const FlopsPerToken& flops) {
  const double rate = tokens_per_second * flops.causal;
  reached = std::max(reached, rate);
  const double peak = std::max(measured, reached);
  m.mfu = tokens_per_second * flops.full / peak;
  m.mfu_causal = rate / peak;
  m.mfu_is_bound = reached > measured;
  if (published > 0) m.mfu_published = tokens_per_second * flops.full / published;
  std::string lines;
  if (m.mfu_is_bound && !std::exchange(explained_bound, true))
    lines = str("mfu       is an upper bound from here on, relative to the fastest step: this one computes ",
                std::lround(rate * 1e-9), " GFLOP/s, but products only ", std::lround(measured * 1e-9),
                " GFLOP/s at startup, when the machine was busy");
  if (m.mfu > 1 && !std::exchange(explained_full, true))
    lines += str(lines.empty() ? "" : "\n",
                 "mfu       above 100 % counts attention that the causal mask skips; \"causal\" does not");
  return lines;
}

std::string describe(const MatrixPeak& peak) {
  return str("measured matrix peak ", std::lround(peak.measured * 1e-9), " GFLOP/s",
             peak.published > 0 ? str(", ", std::lround(100 * peak.measured / peak.published),
                                      "% of the published peak of ", peak.gpu)
                                : "");
}

}  // namespace flatshard
