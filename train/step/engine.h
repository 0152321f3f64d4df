#pragma once
// Everything of a run that lives on its device: model, units, optimizer, buffers; and the two things it can
// do, a training step (step.cpp) and an evaluation (evaluate.cpp). It is built twice by the same code: on
// planning arenas and streams, where it only counts, and for real.

#include <functional>
#include <span>
#include <vector>

#include "runtime/graph.h"
#include "train/config/run_setup.h"
#include "train/step/memory_plan.h"
#include "train/step/mirror.h"
#include "train/step/optimizer.h"
#include "train/step/stage_units.h"
#include "train/text/data.h"

namespace flatshard {

// What one step is told.
struct StepOrder {
  int64_t data_step;  // which global batch
  int64_t update;     // the number of this update, from 1
  double lr;
  double loss_scale;
  int64_t targets;  // that count, in the whole global batch
};

// What it tells, after the device has finished.
struct StepResult {
  std::span<const double> lane_losses;  // of this rank's lanes in order; times the loss scale / targets
  double grad_norm;
  bool finite;  // otherwise nothing was updated
};

// The loss of one sequence in an evaluation, summed over its targets.
struct SequenceLoss {
  double sum, targets;
};

class Engine {
 public:
  Engine(const RunSetup& setup, int rank, Communicators comms, MemoryPlan& memory, StreamGroup& streams);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();  // with random values, as the seed has them
  void initialize(const InitialValues& values);
  // Or, in its place, from a checkpoint: each unit's shards, whose padding is zero, are filled on the host;
  // and when that is done on all ranks, everybody gets the values.
  void load_shards(const std::function<void(size_t unit)>& load);
  void publish_all();
  StepResult step(const Data& data, const StepOrder& order);
  // The sequences of one evaluation batch of this rank.
  std::vector<SequenceLoss> evaluate(const Data& data, int64_t batch);
  // Run the largest step and evaluation on planning arenas; of many micro-steps the first ones.
  static constexpr int64_t kPlannedMicroSteps = 64;
  void plan_step();
  void plan_evaluation();
  // And what is said to other ranks beside these: first values, and the masters of whole units.
  void plan_first_and_last_values();

  Model& model() { return model_; }
  std::vector<ShardedUnit>& units() { return units_.all(); }
  const std::vector<ShardedUnit>& units() const { return units_.all(); }
  const Wrapping& wrapping() const { return units_.wrapping(); }
  Stream& compute() { return compute_; }
  Stream& gather() { return gather_; }
  int rank() const { return rank_; }
  // How long compute has stood waiting for communication so far.
  double waited_seconds() const { return streams_.waited_seconds(); }
  // Whether it is this rank that writes what it owns of a unit: where shards have replicas, these take turns.
  bool writes_unit(size_t unit) const {
    const RankGroups& groups = setup_.groups;
    return static_cast<int>(unit) % (groups.ranks / groups.size) == groups.group_of(rank_);
  }

 private:
  // One micro-batch in flight: where its stages' inputs and their gradients lie.
  struct Lane {
    std::vector<Tensor> x;  // x[i] is the input of stage i, i >= 1
    Tensor dx;
  };

  // step.cpp
  void read_batches(const Data& data, int64_t data_step);
  void accumulate(int64_t micro);
  void accumulate_by_graph(int64_t micro);
  void forward(int64_t micro);
  void backward(int64_t micro);
  Context context(const Batch& batch, const Tensor& losses);
  Context context_of(int64_t micro, int lane);
  std::span<const double> sum_losses();
  Tensor losses_of(size_t lane) const { return losses_.device.slice(lane, lane + 1).view({lane_tokens()}); }
  void gather_ahead(int stage, int direction);

  // evaluate.cpp
  void forward_only(Context& c);

  // Room for a batch of so many sequences, in one piece; and the batch in such a piece.
  Mirror batch_space(int64_t sequences);
  static Batch batch_in(const Tensor& space, int64_t tokens);
  // What the lane's data is, on its way to the device, and there.
  Batch read_batch(const Data& data, int64_t data_step, int64_t lane, const Mirror& space, int64_t tokens);
  void set_target_weights(double value);
  int64_t lane_tokens() const { return setup_.batching.lane_sequences * setup_.seq_len(); }
  int64_t local_lanes() const { return setup_.batching.lanes * setup_.batching.micro_steps; }

  const RunSetup& setup_;
  int rank_;
  MemoryPlan& memory_;
  StreamGroup& streams_;
  Stream &compute_, &gather_, &reduce_;
  Model model_;
  StageUnits units_;
  Optimizer optimizer_;

  Tensor target_weights_;       // what each token's loss counts
  std::vector<Mirror> inputs_;  // of this rank's lanes, micro-step by micro-step
  std::vector<Batch> batches_;  // they, on the device
  Mirror losses_;               // (lane, token)
  Mirror norm_, nonfinite_;
  std::vector<Lane> lanes_;
  std::vector<int64_t> marks_;  // where each stage's saved activations begin
  std::vector<double> lane_losses_;
  std::vector<Graph> graphs_;  // of the micro-steps, where there are any
  bool has_stepped_ = false;
};

}  // namespace flatshard
