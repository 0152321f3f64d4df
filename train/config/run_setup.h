#pragma once
// A config made definite for a number of ranks: sizes derived, choices made, contradictions refused. No data
// and no device are needed, so --plan can work from it.

#include "comm/communicator.h"
#include "comm/slots.h"
#include "comm/world.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "train/config/batching.h"
#include "train/config/config.h"
#include "train/config/wrapping.h"

namespace flatshard {

struct RunSetup {
  Config config;
  ModelConfig model;  // resolved
  Batching batching;
  DType compute;
  UnitOptions units;
  WrapOptions wrap;
  RankGroups groups;
  Device device;
  bool device_is_here;  // otherwise the setup is for a plan alone
  Transport transport;
  int64_t eval_sequences;  // of a rank's evaluation batch
  int64_t shard_bytes;     // of a file of tensors

  int64_t seq_len() const { return config.data.seq_len; }
  bool mask_documents() const { return config.data.packing == "documents"; }
  bool uses_graphs() const { return config.run.cuda_graphs && device.is_cuda(); }
  double peak_lr() const;  // optimizer.lr, scaled by the batch where asked
};

// Which of the ranks of its host a rank is: it decides which GPU is its own.
struct HostPlace {
  int rank = 0, ranks = 1;
};

enum class Purpose { run, plan };  // a plan needs no GPU

RunSetup set_up(const Config& config, int ranks, HostPlace place = {}, Purpose purpose = Purpose::run);
RunSetup set_up(const Config& config, const World& world, Purpose purpose = Purpose::run);  // for this rank

// Threads for this rank to compute with: as many as the config says, or as the world leaves it.
void use_threads(const RunConfig& run, const World& world);

}  // namespace flatshard
