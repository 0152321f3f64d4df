#include "train/run/measured_machines.h"

#include "train/measure/copy_rate.h"
#include "train/measure/update_rate.h"
#include "train/simulate/machines_of_run.h"

namespace flatshard {

std::optional<Cluster> measured_machines(const RunSetup& setup, World& world, const MatrixPeak& peak,
                                         const Bandwidth& bandwidth) {
  const bool on_cpu = !setup.device.is_cuda();
  MeasuredRates rates{.products = peak.measured / world.size(), .exchanged = bandwidth.bytes_per_second};
  if (on_cpu) rates.copies = copy_rate(world);
  if (!on_cpu && setup.config.parallel.offload) rates.updates = update_rate(world);
  if (on_cpu && bandwidth.measured) rates.reduced = reduce_rate(setup, world);
  if (on_cpu) rates.ops = time_ops(setup, rates.products);
  return machines_of_run(setup, peak.gpu, rates);
}

}  // namespace flatshard
