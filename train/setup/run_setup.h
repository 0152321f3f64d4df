#pragma once
// A config resolved for a number of ranks: derives sizes, makes choices, refuses contradictions. It needs no
// data and no device, so that --plan can use it.

#include <algorithm>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/gpu_place.h"
#include "comm/levels.h"
#include "comm/slots.h"
#include "comm/world.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "train/config/config.h"
#include "train/config/trace_steps.h"
#include "train/setup/batching.h"
#include "train/setup/pipeline.h"
#include "train/setup/wrapping.h"

namespace flatshard {

struct RunSetup {
  Config config;
  ModelConfig model;  // config.model, resolved
  Batching batching;
  DType compute;
  UnitOptions units;
  WrapOptions wrap;
  RankGroups groups;
  std::vector<int> hosts;  // host of each rank, as a number
  Device device;
  bool device_is_here;  // false: the setup is only good for a plan
  Transport transport;
  int64_t eval_sequences;  // sequences of a rank in an evaluation batch
  int64_t shard_bytes;     // maximum size of a tensor file
  std::optional<TraceSteps> trace;
  int64_t max_patches = 0;  // most patches in a sequence; 0: as many as its tokens stand for
  std::vector<std::string> warnings{};
  Pipeline pipeline{};                               // batching and groups describe the ranks of one stage
  std::shared_ptr<const Wrapping> units_of_model{};  // units of all stages

  bool has_adapters() const { return !model.adapters.empty(); }

  int ranks() const { return pipeline.stages * groups.ranks; }
  int stage_of(int rank) const { return rank / groups.ranks; }
  int data_rank(int rank) const { return rank % groups.ranks; }
  // The ranks that share a rank's state, in order, and the ranks that own the same shard.
  std::vector<int> group_of(int rank) const;
  std::vector<int> replicas_of(int rank) const;
  // Whether `holds` is true for the members of any such group; stops at the first one.
  bool any_group(const std::function<bool(const std::vector<int>& members)>& holds) const;
  std::vector<int> hosts_of(const std::vector<int>& members) const;
  bool spans_hosts() const;
  bool may_use_two_levels() const;
  RankLevels levels_of(int rank) const;
  bool uses_two_levels() const;  // whether any group of ranks does
  // Why a group has only one level although two would send less; "" if there is no such group.
  std::string why_one_level() const;

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
  int64_t head_chunk() const {
    const int64_t chunk = config.train.head_chunk, S = seq_len();
    return config.loss.is_used() ? std::max<int64_t>(1, chunk / S) * S : chunk;
  }
  bool uses_graphs() const { return config.run.cuda_graphs && device.is_cuda(); }
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
