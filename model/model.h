#pragma once
// A decoder-only transformer as a row of stages: embedding, blocks, head. A stage computes; a unit is the
// list of parameters a stage works with. Usually each stage has its own unit; with tied embeddings the first
// and the last share one. Nothing here knows of ranks, shards or optimizers.
//
// forward: y = stage(x). backward: dx holds the gradient for y and becomes the gradient for x, in place;
// gradients of parameters are added to g, where a frozen parameter's tensor is empty. A stage's backward pass
// stands on what its last forward pass saved: micro-batches in flight together need a set of stages each, a
// lane. The last stage gives losses instead of y: forward alone in evaluation, forward and backward together
// in training (its backward computes the losses as well, so training skips its forward), or logits where the
// context has a place for them.

#include <memory>
#include <vector>

#include "model/config.h"
#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) = 0;
  virtual void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                        const Tensor& x) = 0;
};

// Whether a block is one stage, or two: its attention and its MLP, each with the norm before it.
enum class StageCut { blocks, halves };

class Model {
 public:
  // `tables` holds what the model keeps for the whole run (the rotary table).
  Model(const ModelConfig& config, Arena& tables, int lanes = 1, StageCut cut = StageCut::blocks);

  const ModelConfig& config() const { return config_; }
  int stage_count() const { return static_cast<int>(unit_of_.size()); }
  Stage& stage(int i, int lane = 0) { return *stages_[static_cast<size_t>(lane)][static_cast<size_t>(i)]; }
  int unit_of(int stage) const { return unit_of_[static_cast<size_t>(stage)]; }
  const std::vector<ParamList>& units() const { return units_; }
  std::vector<ParamList>& units() { return units_; }
  int64_t parameter_count() const;

  // Fills the tables, once their arena is committed.
  void fill_tables(Stream& stream);

 private:
  using Stages = std::vector<std::unique_ptr<Stage>>;
  Stages make_stages(std::vector<ParamList>& units) const;

  ModelConfig config_;
  StageCut cut_;
  Tensor rope_table_;
  std::vector<ParamList> units_;
  std::vector<int> unit_of_;
  std::vector<Stages> stages_;  // of each lane
};

}  // namespace flatshard
