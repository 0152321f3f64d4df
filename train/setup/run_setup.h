#pragma once
// A config resolved for a number of ranks: set_up() derives sizes, makes choices, and refuses contradictions,
// once for a run. It needs no data and no device, so that --plan can use it.

#include <algorithm>
#include <memory>

#include "comm/communicator.h"
#include "comm/gpu_place.h"
#include "comm/slots.h"
#include "comm/world.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "train/config/config.h"
#include "train/config/trace_steps.h"
#include "train/setup/batching.h"
#include "train/setup/rank_layout.h"
#include "train/setup/wrapping.h"

namespace flatshard {

// A run is also the layout of its ranks: what only places ranks takes a RankLayout.
struct RunSetup : RankLayout {
  Config config;
  ModelConfig model;    // config.model, resolved
  Batching batching{};  // the batch of a stage
  DType compute = DType::bf16;
  UnitOptions units{};
  WrapOptions wrap{};
  std::shared_ptr<const Wrapping> units_of_model;  // units of all stages
  Device device = Device::cpu();
  bool device_is_here = true;  // false: the setup is only good for a plan
  Transport transport = Transport::host;
  int64_t eval_sequences = 0;  // sequences of a rank in an evaluation batch
  int64_t max_patches = 0;     // most patches in a sequence; 0: as many as its tokens stand for
  int64_t shard_bytes = 0;     // maximum size of a tensor file
  std::optional<TraceSteps> trace;
  std::vector<std::string> warnings;
  std::string why_no_graphs;  // why micro-steps cannot be captured as CUDA graphs; "" if they can

  bool has_adapters() const { return !model.adapters.empty(); }
  int64_t seq_len() const { return config.data.seq_len; }
  // The most rows of a micro-batch of this many sequences.
  RowCounts most_rows(int64_t sequences) const;
  // The tokens of a sample, with its prompt.
  int64_t sample_length() const {
    const int64_t given = config.log.sample_length;
    return given > 0 ? given : std::min<int64_t>(256, model.max_positions);
  }
  // The most tokens of a sequence, or of a sample if there are any.
  int64_t longest_text() const {
    return config.log.samples.empty() ? seq_len() : std::max(seq_len(), sample_length());
  }
  bool mask_documents() const { return config.data.packing != Packing::wrapped; }
  // Tokens whose logits exist at once; with a loss of whole answers, a multiple of the sequence length.
  double router_aux_loss() const { return config.train.router_aux_loss.value_or(model.router_aux_loss); }
  int64_t head_chunk() const {
    const int64_t chunk = config.train.head_chunk, S = seq_len();
    return config.loss.is_used() ? std::max<int64_t>(1, chunk / S) * S : chunk;
  }
  // Returns whether micro-steps are captured as CUDA graphs. On several ranks "auto" captures nothing: no
  // hardware has run a captured call of NCCL yet.
  bool uses_graphs() const {
    const CudaGraphs wanted = config.run.cuda_graphs;
    const bool wants = wanted == CudaGraphs::on || (wanted == CudaGraphs::automatic && ranks() == 1);
    return wants && device.is_cuda() && why_no_graphs.empty();
  }
  double peak_lr() const;  // optimizer.lr, scaled as optimizer.lr_scaling says
};

// The model of a run, whose parameters are marked as trained and as decayed. `tables` is that of Model.
Model grouped_model(const RunSetup& setup, Arena& tables);

// A rank's index among the ranks of its host, its GPU, and the host of every rank of the run, as numbers;
// `hosts` is empty if they are not known.
struct HostPlace {
  int rank = 0, ranks = 1;
  GpuPlace gpu{};
  std::vector<int> hosts{};
};
HostPlace place_of(World& world);  // call on all ranks

// A plan needs no GPU. A plan for unknown hosts assumes that they have NCCL.
enum class Purpose { run, plan };

RunSetup set_up(const Config& config, int ranks, HostPlace place = {}, Purpose purpose = Purpose::run);
// The setup for this rank. Call on all ranks.
RunSetup set_up(const Config& config, World& world, Purpose purpose = Purpose::run);

// A config in which every value is the one that the run uses, instead of "auto", or 0 for a default. It means
// the same run on the setup's number of ranks, with `threads` per rank. Values that only data or a
// measurement decides stay open: data.vocab = 0, data.chat_template = "", parallel.bandwidth_gbps = 0.
Config resolved_config(const RunSetup& setup, int threads);

// Sets the number of compute threads of this rank: run.threads, or its share of the processors.
void use_threads(const RunConfig& run, const World& world);

}  // namespace flatshard
