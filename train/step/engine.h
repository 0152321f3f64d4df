#pragma once
// The device state of a run (model, units, optimizer, buffers) and its two operations: a training step
// (step.cpp) and an evaluation (evaluate.cpp). The same code constructs it twice: on planning arenas and
// streams, which only count bytes, and on committed ones.

#include <functional>
#include <span>
#include <vector>

#include "comm/pipe.h"
#include "runtime/graph.h"
#include "train/setup/run_setup.h"
#include "train/step/memory_plan.h"
#include "train/step/mirror.h"
#include "train/step/optimizer.h"
#include "train/step/stage_units.h"
#include "train/step/step_buffers.h"
#include "train/text/data.h"

namespace flatshard {

// The inputs of a step.
struct StepOrder {
  int64_t data_step;  // index of the global batch
  int64_t update;     // number of the update, from 1
  double lr;
  double loss_scale;
  int64_t targets;  // in the global batch
};

// The results of a step, once the device has finished.
struct StepResult {
  // Per local lane, in order; scaled by loss_scale / targets. Zero except in the last section.
  std::span<const double> lane_losses;
  double grad_norm;
  bool finite;  // if false, nothing was updated
};

// The loss of one sequence in an evaluation, summed over its targets; zero except in the last section.
struct SequenceLoss {
  double sum, targets;
};

class Engine {
 public:
  // With pipeline stages, the engine of a rank has the units of its section and communicators for its ranks.
  Engine(const RunSetup& setup, int rank, Communicators comms, const PipeCommunicators& pipe,
         MemoryPlan& memory, StreamGroup& streams);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();  // with random values from the seed
  void initialize(const InitialValues& values);
  // Resuming from a checkpoint instead: load_shards() zeroes the padding of every unit's shards and has
  // `load` fill them on the host; publish_all(), once all ranks have loaded, gathers the parameters.
  void load_shards(const std::function<void(size_t unit)>& load);
  void publish_all();
  StepResult step(const Data& data, const StepOrder& order);
  // The losses of this rank's sequences in an evaluation batch.
  std::vector<SequenceLoss> evaluate(const Data& data, int64_t batch);
  // Run the largest step and evaluation on planning arenas; of a long step, about kPlannedMicroSteps
  // micro-steps.
  static constexpr int64_t kPlannedMicroSteps = 64;
  void plan_step();
  int64_t planned_micro_steps() const;
  void plan_evaluation();
  // The same for the remaining collectives: initialization, and the gathering of unsharded masters.
  void plan_first_and_last_values();

  Model& model() { return model_; }
  std::vector<ShardedUnit>& units() { return units_.all(); }
  const std::vector<ShardedUnit>& units() const { return units_.all(); }
  const Wrapping& wrapping() const { return units_.wrapping(); }
  const Wrapping& whole_wrapping() const { return whole_; }  // of all sections
  FlatLayout trainable_layout(const ParamList& unit) const {
    return FlatLayout::trainable(unit, setup_.groups.size, setup_.groups.count());
  }
  const UnitOptions& unit_options() const { return setup_.units; }
  const Passes& passes() const { return passes_; }                  // of a step
  int most_in_flight() const { return buffers_.most_in_flight(); }  // micro-batches in this section, at most
  Stream& compute() { return compute_; }
  Stream& gather() { return gather_; }
  int rank() const { return rank_; }
  int data_rank() const { return setup_.data_rank(rank_); }  // in its section
  // How long compute has waited for communication so far.
  double waited_seconds() const { return streams_.waited_seconds(); }
  // Whether this rank writes its shard of the unit to a checkpoint: replicas of a shard alternate by unit.
  bool writes_unit(size_t unit) const {
    const RankGroups& groups = setup_.groups;
    return static_cast<int>(unit) % (groups.ranks / groups.size) == groups.group_of(data_rank());
  }

 private:
  // engine.cpp
  Wrapping own_wrapping() const;
  NormOrder norm_order(const PipeCommunicators& pipe) const;

  // step.cpp
  void read_batches(const Data& data, int64_t data_step);
  void accumulate(const Passes& passes);
  void execute(const Passes& passes, size_t at);
  void accumulate_by_graph(int64_t micro);
  void receive_for(const Action& action);
  void forward(const Passes& passes, size_t at);
  void backward(const Passes& passes, size_t at);
  Context context(const Batch& batch, const Tensor& losses, Arena& saved);
  Context context_of(const Action& action, int lane);
  std::span<const double> sum_losses();
  Tensor losses_of(size_t lane) const { return losses_.device.slice(lane, lane + 1).view({lane_tokens()}); }
  void gather_ahead(const Passes& passes, size_t visit);

  // evaluate.cpp
  void forward_only(Context& c);

  // One buffer for a batch of `sequences`, and the batch as views of such a buffer.
  Mirror batch_space(int64_t sequences);
  static Batch batch_in(const Tensor& space, int64_t tokens);
  // Reads the lane's data into space.host and enqueues the copy to the device; returns the device batch.
  Batch read_batch(const Data& data, int64_t data_step, int64_t lane, const Mirror& space, int64_t tokens);
  void set_target_weights(double value);
  int64_t lane_tokens() const { return setup_.batching.lane_sequences * setup_.seq_len(); }
  int section() const { return setup_.section_of(rank_); }
  bool has_losses() const { return section() == setup_.pipeline.sections - 1; }
  const Chunk& chunk_of(const Action& action) const {
    return setup_.pipeline.chunks[static_cast<size_t>(action.chunk)];
  }
  // Whether the action's gradients go to the chunk before.
  bool sends_gradients(const Action& action) const {
    return chunk_of(action).first > whole_.first_trained_stage();
  }
  int section_of(int chunk) const { return setup_.pipeline.chunks[static_cast<size_t>(chunk)].section; }
  // Between a chunk and the next one.
  Flow activations_from(int chunk) const {
    return setup_.pipeline.embeds_apart && chunk == 0 ? Flow::embedded : Flow::activations;
  }
  Flow gradients_to(int chunk) const {
    return setup_.pipeline.embeds_apart && chunk == 0 ? Flow::embedded_gradients : Flow::gradients;
  }
  int64_t local_lanes() const { return setup_.batching.lanes * setup_.batching.micro_steps; }

  const RunSetup& setup_;
  int rank_;
  MemoryPlan& memory_;
  StreamGroup& streams_;
  Stream &compute_, &gather_, &reduce_;
  Model model_;
  const Wrapping& whole_;
  Passes passes_;
  StageUnits units_;
  Optimizer optimizer_;
  StepBuffers buffers_;
  Pipe pipe_;

  Tensor target_weights_;          // weight of each token's loss
  std::vector<Mirror> inputs_;     // per local lane, in the order of micro-steps
  std::vector<Batch> batches_;     // the same on the device
  std::vector<RandomDraw> draws_;  // their random numbers
  Mirror losses_;                  // (lane, token)
  Mirror norm_, nonfinite_;
  std::vector<double> lane_losses_;
  std::vector<Graph> graphs_;  // one per micro-step, with run.cuda_graphs
  bool has_stepped_ = false;
};

}  // namespace flatshard
