#pragma once
// A model divided over pipeline stages, which the code calls sections: a stage of the model is its embedding,
// a block or its head (model/model.h). Section s of S is a group of ranks that owns the parameters of a
// chunk, a range of the model's stages, or of several chunks if the schedule is interleaved. A micro-batch
// passes through the chunks in order: forward, then backward. With one section, the whole model is one chunk.
//
// Tied embeddings: the embedding is a chunk of its own, of the last section, which has the head and so the
// parameters that both share. It sends the embedded tokens to section 0 and receives their gradient at the
// end, so that both gradients are added in the order that one section uses.
//
// Each section executes a list of actions, a pure function of the schedule:
//
//   1f1b          at most S - s micro-batches in flight in section s: after the first S - s forward passes,
//                 backward and forward passes alternate
//   interleaved   the same with `chunks` chunks per section, which shortens the idle time at both ends
//   gpipe         all forward passes, then all backward passes
//   sequential    one micro-batch at a time; the sections work one after another
//
// Backward passes are in the order of micro-batches in all of them, as the exact sum of gradients requires.

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

class Model;

struct Chunk {
  int first, end;  // of the model's stages
  int section;
};

struct Action {
  bool forward;
  int chunk;
  int64_t micro;
  bool operator==(const Action&) const = default;
};

struct Pipeline {
  int sections = 1;
  std::string schedule = "sequential";
  std::vector<Chunk> chunks{};  // in the order of the model
  bool embeds_apart = false;    // the first chunk is the embedding, and belongs to the last section

  int section_of(int stage) const;  // that owns it
  bool owns(int section, int stage) const { return section_of(stage) == section; }
  int last_chunk() const { return static_cast<int>(chunks.size()) - 1; }
  // How many outputs of a chunk may wait to be sent: of an embedding apart, those that the first section has
  // not asked for yet.
  int outputs_at_once(int chunk) const { return embeds_apart && chunk == 0 ? sections + 2 : 2; }
  bool trains(int chunk, int first_trained) const {
    return chunks[static_cast<size_t>(chunk)].end > first_trained;
  }
};

// Divides a model as the config says; micro_steps are those of a training step.
Pipeline pipeline_of(const ParallelConfig& config, const Model& model, int64_t seq_len, int64_t micro_steps);

// The actions of a section in a training step. No stage below `first_trained` has a backward pass.
std::vector<Action> actions_of(const Pipeline& pipeline, int section, int64_t micro_steps, int first_trained);

// The largest number of micro-batches between the start of their forward pass through a chunk and the end of
// their backward pass, or, where it has none, of their forward pass.
int in_flight(const std::vector<Action>& actions, int chunk);
// The largest number of micro-batches that have passed backward through some of these chunks, but not yet
// through all.
int partly_done(const std::vector<Action>& actions, const std::vector<int>& chunks);

// One stage in an action of a section: its forward or backward pass.
struct Visit {
  int stage;
  bool forward;
  int keep_for = -1;  // the stage whose units stay gathered after it; -1: none
};
// What a section does in a step. The last stage of the model has no forward pass of its own: its backward
// pass computes the losses.
struct Passes {
  std::vector<Action> actions;
  std::vector<Visit> visits;        // of all actions, in order
  std::vector<size_t> first_visit;  // by action, and the number of all
};
Passes passes_of(const Pipeline& pipeline, int section, int64_t micro_steps, int first_trained);

// The share of a step in which a section is idle, if all sections work equally long: (S - 1) / (M + S - 1),
// where chunks divide a micro-batch's work further.
double bubble_of(const Pipeline& pipeline, int64_t micro_steps);

}  // namespace flatshard
