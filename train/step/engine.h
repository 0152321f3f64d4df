#pragma once
// The device state of a run (model, units, optimizer, buffers) and its operations: a training step
// (step.cpp), an evaluation (evaluation_step.cpp), and the continuation of texts (sampling_step.cpp). The
// same code constructs it twice: on planning arenas and streams, which only count bytes, and on committed
// ones.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/pipe.h"
#include "hub/prompt_images.h"
#include "runtime/graph.h"
#include "runtime/mirror.h"
#include "text/data/data.h"
#include "train/setup/run_setup.h"
#include "train/step/expert_ranks.h"
#include "train/step/lane_inputs.h"
#include "train/step/layer_units.h"
#include "train/step/memory_plan.h"
#include "train/step/optimizer.h"
#include "train/step/step_buffers.h"

namespace flatshard {

// The inputs of a step.
struct StepInputs {
  int64_t data_step;  // index of the global batch
  int64_t update;     // number of the update, from 1
  double lr;
  double loss_scale;
  int64_t targets;         // targets in the global batch
  AnswerCounts answers{};  // answers in the global batch, for a loss of whole answers
  double baseline = 0;     // baseline of a loss that has one: max(0, the mean of gains())
};

// The results of a step, once the device has finished.
struct StepResult {
  // The loss of each local lane, in order; scaled by loss_scale / targets, or as factors_of() says. Zero
  // except in the last stage.
  std::span<const double> lane_losses;
  std::span<const double> sequence_losses;  // loss of each sequence of these lanes, likewise
  std::span<const AnswerSums> answers;      // sums of each sequence, for a loss of whole answers
  std::span<const int32_t> expert_counts;   // (blocks, E): how often this rank's lanes chose each expert
  // The routers' losses of each local lane, without their weights: the one that balances, and the z-loss.
  // Their sums over lanes are means over the step's tokens. Empty without such losses.
  std::span<const double> router_losses;
  double grad_norm;
  bool finite;  // false: nothing was updated
};

// The loss of one sequence in an evaluation, summed over its targets, and the sums of a loss of whole
// answers, with factors of 1; zero except in the last stage.
struct SequenceLoss {
  double sum, targets;
  AnswerSums answers{};
};

using Tokens = std::vector<int32_t>;

class Engine {
 public:
  // With pipeline stages, the engine of a rank has the units of its stage and communicators for its ranks.
  Engine(const RunSetup& setup, int rank, Communicators comms, const PipeCommunicators& pipe,
         MemoryPlan& memory, StreamSet& streams);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();  // sets random values from the seed
  void initialize(const InitialValues& values);
  // The alternative when the run resumes from a checkpoint: load_shards() zeroes the padding of every unit's
  // shards and has `load` fill them on the host; publish_all(), once all ranks have loaded, gathers the
  // parameters.
  void load_shards(const std::function<void(size_t unit)>& load);
  void publish_all();
  StepResult step(const Data& data, const StepInputs& inputs);
  // Called after each step if moves_router_biases(). `counts` (blocks, E) are how often all ranks chose each
  // expert; after a step that updated nothing they are empty, and biases stay.
  void move_router_biases(std::span<const double> counts);
  bool moves_router_biases() const { return setup_.config.train.router_bias_rate > 0; }
  // The losses of this rank's sequences in an evaluation batch.
  std::vector<SequenceLoss> evaluate(const Data& data, int64_t batch, double baseline = 0);
  // The gains over the reference of answers to other prompts, summed for each local lane of a step; zero
  // except in the last stage.
  std::vector<double> gains(const Data& data, int64_t data_step);
  // The losses of all tokens of this rank's sequences in an evaluation batch; zero except in the last stage,
  // and where there is no target.
  std::vector<float> target_losses(const Data& data, int64_t batch);
  // Continues each prompt, whose images are read as `image_input` says, by its likeliest tokens, until one of
  // `ends` follows or the text with the prompt has RunSetup::sample_length() tokens. Every rank computes all
  // texts, but only the last stage has the tokens: share() makes them known to all ranks, and ends the work
  // if it returns false. Texts do not depend on the number of ranks.
  using ShareTokens = std::function<bool(std::span<int32_t> tokens)>;
  std::optional<std::vector<Tokens>> continue_texts(std::span<const TextPrompt> prompts,
                                                    const std::optional<ImageInput>& image_input,
                                                    std::span<const int32_t> ends, const ShareTokens& share);
  // The plan methods run the largest step and evaluation on planning arenas; a long step is cut to about
  // kPlannedMicroSteps micro-steps. A recording gets a step that follows the end of another, and lasts until
  // the next can begin.
  static constexpr int64_t kPlannedMicroSteps = 64;
  void plan_step();
  void plan_update();  // the end of a step
  int64_t planned_micro_steps() const;
  void plan_evaluation();
  void plan_samples();
  // Plans the remaining collectives: initialization, and the gathering of unsharded masters.
  void plan_first_and_last_values();

  Model& model() { return model_; }
  std::vector<ShardedUnit>& units() { return units_.all(); }
  const std::vector<ShardedUnit>& units() const { return units_.all(); }
  const Wrapping& wrapping() const { return units_.wrapping(); }
  const Wrapping& whole_wrapping() const { return whole_; }  // units of all stages
  FlatLayout trainable_layout(const ParamList& unit) const {
    return FlatLayout::trainable(unit, setup_.groups.size, setup_.groups.count());
  }
  const UnitOptions& unit_options() const { return setup_.units; }
  const Schedule& schedule() const { return schedule_; }            // schedule of a step
  int most_in_flight() const { return buffers_.most_in_flight(); }  // most micro-batches in this stage
  Stream& compute() { return compute_; }
  Stream& gather() { return gather_; }
  int rank() const { return rank_; }
  int data_rank() const { return setup_.data_rank(rank_); }  // rank within its stage
  // The time for which compute has waited for communication so far.
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
  void accumulate(const Schedule& schedule);
  void micro_step(const Schedule& schedule, size_t micro);
  void forward(const Pass& pass);
  void backward(const Pass& pass);
  void prefetch_after(const Visit& visit, const Pass& pass);
  void prefetch_next_step();
  void update(const StepInputs& inputs);
  void replay_micro_step(const Schedule& schedule, size_t micro);
  // Whether the backward pass recomputes whole layers.
  bool recomputes_layers() const { return repeats_blocks(setup_.config.train.recompute); }

  // pipeline_step.cpp
  void accumulate_in_stages(const Schedule& schedule);
  void receive_for(const Action& action);
  Message message_between(const Action& action, int chunk, const LaneTensors& buffer) const;
  void forward_in_stage(const Pass& pass);
  void backward_in_stage(const Pass& pass);
  int stage_of(int chunk) const;
  Flow activations_from(int chunk) const;
  Flow gradients_to(int chunk) const;

  // batches.cpp
  struct LayerWork {
    Layer& layer;
    LayerCall call;
    const RowCounts& rows;
    Tensor x;  // input of the layer
  };
  void read_batches(const Data& data, int64_t data_step);
  LayerWork work_on(const Action& action, int layer, int lane);
  LayerCall call(const LaneInputs& inputs, const Tensor& losses, Arena& saved);
  LayerCall call(const Batch& batch, const Tensor& losses, Arena& saved);
  void sum_losses();
  void sum_router_losses(double loss_scale);
  AnswerSums sums_of_sequence(const LaneInputs& inputs, const Tensor& losses, int64_t row,
                              const AnswerFactors& factors) const;
  Tensor host_losses_of(size_t lane) const {
    return losses_.host.slice(lane, lane + 1).view({lane_tokens()});
  }
  Tensor losses_of(size_t lane) const { return losses_.device.slice(lane, lane + 1).view({lane_tokens()}); }
  void set_target_weights(double value);
  // The factors of the routers' losses, and counts of zero, for a step of so many tokens without padding.
  void set_routing(double loss_scale, int64_t tokens);
  void measure_lanes();

  // evaluation_step.cpp
  // Calls take(inputs, losses) with the inputs of an evaluation batch and its losses on the host, in the last
  // stage only.
  template <class Take>
  void measure(const Data& data, int64_t batch, bool has_answers, Take&& take);
  void forward_only(LayerCall& c, const RowCounts& rows, const RowCounts& most) {
    forward_only(c, rows, most, {0, model_.layer_count()}, {}, {});
  }
  struct LayerRange {
    int first, end;
  };
  void forward_only(LayerCall& c, const RowCounts& rows, const RowCounts& most, const LayerRange& layers,
                    const Tensor& input, const Tensor& output);

  // sampling_step.cpp
  class TextPasses;

  int64_t lane_tokens() const { return setup_.batching.lane_sequences * setup_.seq_len(); }
  int stage() const { return setup_.stage_of(rank_); }
  bool has_losses() const { return stage() == setup_.pipeline.stages - 1; }
  int64_t local_lanes() const { return setup_.batching.lanes * setup_.batching.micro_steps; }

  const RunSetup& setup_;
  int rank_;
  MemoryPlan& memory_;
  StreamSet& streams_;
  Stream &compute_, &gather_, &reduce_;
  Model model_;
  const Wrapping& whole_;
  Schedule schedule_;
  std::optional<CopyStreams> copies_;  // with anything offloaded
  LayerUnits units_;
  std::optional<ExpertRanks> expert_ranks_;  // with parallel.expert_ranks
  Optimizer optimizer_;
  StepBuffers buffers_;
  Pipe pipe_;

  Tensor target_weights_;           // weight of each token's loss
  std::vector<LaneInputs> inputs_;  // inputs of each local lane, in the order of micro-steps
  std::vector<RandomDraw> draws_;   // random numbers of each local lane
  Mirror losses_;                   // (lane, token)
  AnswerFactors factors_;           // factors of the step, for a loss of whole answers
  Mirror expert_counts_;            // (blocks, E), of a step
  Mirror bias_changes_;             // (blocks, E) f32, with train.router_bias_rate
  Tensor lane_counts_;              // (local lanes, E), as Routing::counts
  Mirror routing_factors_;          // (local lanes, 2)
  Mirror routing_losses_;           // (local lanes, token, 2), as Routing::losses
  Mirror norm_, nonfinite_;
  std::vector<double> lane_losses_, sequence_losses_, router_losses_;
  std::vector<AnswerSums> answers_;  // sums of each sequence
  std::vector<Graph> graphs_;        // one per micro-step, with run.cuda_graphs
  bool has_stepped_ = false;
  bool begins_step_ = false;  // exactly the units of prefetch_next_step() are gathered
};

}  // namespace flatshard
