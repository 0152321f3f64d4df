#include "train/setup/resolved_config.h"

namespace flatshard {

Config resolved_config(const RunSetup& setup, int threads) {
  Config c = setup.config;
  const int64_t vocab = c.model.vocab;  // the vocabulary before padding
  c.model = setup.model;
  c.model.vocab = vocab;
  c.run.device = setup.device.is_cuda() ? DeviceChoice::cuda : DeviceChoice::cpu;
  c.run.threads = threads;
  c.train.lane_size = setup.batching.lane_size();
  c.train.eval_batch_size_per_device = setup.eval_sequences;
  c.parallel.transport = setup.transport == Transport::nccl ? TransportChoice::nccl : TransportChoice::mpi;
  if (c.data.tokenizer.empty()) c.data.tokenizer = c.init_from;
  if (!setup.model.quantized.empty() && !c.quant.compute) c.quant.compute = c.precision.compute;
  return c;
}

}  // namespace flatshard
