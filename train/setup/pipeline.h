#pragma once
// A model divided over pipeline stages. Stage s of S is a group of ranks that owns the parameters of a
// chunk, a range of the model's layers, or of several chunks if the schedule is interleaved. A micro-batch
// passes through the chunks in order: forward, then backward. With one stage, the whole model is one chunk.
//
// Tied embeddings: the embedding is a chunk of its own, of the last stage, which has the head and so the
// parameters that both share. It sends the embedded tokens to stage 0 and receives their gradient at the
// end, so that both gradients are added in the order that one stage uses.
//
// Each stage executes a list of actions, a pure function of the schedule:
//
//   1f1b          at most S - s micro-batches in flight in stage s: after the first S - s forward passes,
//                 backward and forward passes alternate
//   interleaved   the same with `chunks` chunks per stage, which shortens the idle time at both ends
//   gpipe         all forward passes, then all backward passes
//   sequential    one micro-batch at a time; the stages work one after another
//
// Backward passes are in the order of micro-batches in all of them, as the exact sum of gradients requires.

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

class Model;

struct Chunk {
  int first, end;  // range of the model's layers
  int stage;
};

struct Action {
  bool forward;
  int chunk;
  int64_t micro;
  bool operator==(const Action&) const = default;
};

struct Pipeline {
  int stages = 1;
  PipelineSchedule schedule = PipelineSchedule::sequential;
  std::vector<Chunk> chunks{};  // all chunks, in the order of the model
  bool embeds_apart = false;    // the first chunk is the embedding, and belongs to the last stage

  int stage_of(int layer) const;  // the stage that owns the layer
  bool owns(int stage, int layer) const { return stage_of(layer) == stage; }
  int last_chunk() const { return static_cast<int>(chunks.size()) - 1; }
  // The most outputs of a chunk that may wait to be sent. A separate embedding keeps the outputs that the
  // first stage has not asked for yet.
  int outputs_at_once(int chunk) const { return embeds_apart && chunk == 0 ? stages + 2 : 2; }
  bool trains(int chunk, int first_trained) const {
    return chunks[static_cast<size_t>(chunk)].end > first_trained;
  }
};

// Divides a model as the config says; `micro_steps` is the number in a training step.
Pipeline pipeline_of(const ParallelConfig& config, const Model& model, int64_t seq_len, int64_t micro_steps);

// The actions of a stage in a training step. No layer below `first_trained` has a backward pass.
std::vector<Action> actions_of(const Pipeline& pipeline, int stage, int64_t micro_steps, int first_trained);

// The largest number of micro-batches between the start of their forward pass through a chunk and the end of
// their backward pass, or, where it has none, of their forward pass.
int in_flight(const std::vector<Action>& actions, int chunk);
// The largest number of micro-batches that have passed backward through some of these chunks, but not yet
// through all.
int partly_done(const std::vector<Action>& actions, const std::vector<int>& chunks);

// One layer in an action of a stage: its forward or backward pass.
struct Visit {
  int layer;
  bool forward;
  int keep_for = -1;  // the layer whose units stay gathered after it; -1: none
};
// An action with the layers that it visits, in order.
struct Pass {
  const Action& action;
  const Visit *first, *last;
  const Visit* end_of_step;  // end of the visits of all later actions
  const Visit* begin() const { return first; }
  const Visit* end() const { return last; }
};
// The work of a stage in a step. The last layer of the model has no forward pass of its own: its backward
// pass computes the losses.
struct Schedule {
  std::vector<Action> actions;
  std::vector<Visit> visits;        // visits of all actions, in order
  std::vector<size_t> first_visit;  // index of each action's first visit, then the number of visits

  Pass pass(size_t action) const {
    return {actions[action], visits.data() + first_visit[action], visits.data() + first_visit[action + 1],
            visits.data() + visits.size()};
  }
};
Schedule schedule_of(const Pipeline& pipeline, int stage, int64_t micro_steps, int first_trained);

// The share of a step in which a stage is idle, if all stages work equally long: (S - 1) / (M + S - 1), where
// M counts the micro-batches once for each chunk of a stage.
double bubble_of(const Pipeline& pipeline, int64_t micro_steps);

}  // namespace flatshard
