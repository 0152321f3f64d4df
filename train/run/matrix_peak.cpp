#include "train/run/matrix_peak.h"

#include <cmath>

#include "runtime/gpu.h"
#include "train/measure/peak.h"
#include "train/plan/gpu_models.h"

namespace flatshard {

MatrixPeak find_matrix_peak(const RunSetup& setup, World& world) {
  const bool tf32 = setup.config.precision.tf32;
  MatrixPeak peak{.measured = matrix_peak(world, setup.device, setup.compute, tf32),
                  .gpu = gpu_name(setup.device)};
  const GpuModel* const model = gpu_model_of_device(peak.gpu);
  if (model && (world.size() == 1 || setup.transport == Transport::nccl))
    peak.published = world.size() * published_matrix_rate(*model, setup.compute, tf32);
  return peak;
}

void MatrixPeak::set_mfu(StepMetrics& m, double tokens_per_second, const FlopsPerToken& flops) const {
  m.mfu = tokens_per_second * flops.full / measured;
  m.mfu_causal = tokens_per_second * flops.causal / measured;
  if (published > 0) m.mfu_published = tokens_per_second * flops.full / published;
}

std::string describe(const MatrixPeak& peak) {
  return str("measured matrix peak ", std::lround(peak.measured * 1e-9), " GFLOP/s",
             peak.published > 0 ? str(", ", std::lround(100 * peak.measured / peak.published),
                                      "% of the published peak of ", peak.gpu)
                                : "");
}

}  // namespace flatshard
