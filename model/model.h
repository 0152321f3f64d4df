#pragma once
// A decoder-only transformer: a sequence of layers (embedding, blocks, head), and for each layer the list of
// parameters that it works with. In a model that reads images, the layers of its tower and its connector come
// first (vision.h), and the embedding merges their rows into the rows of the text. With tied embeddings the
// first and the last layer share a list, otherwise each has its own. The model does not depend on ranks,
// shards or optimizers.
//
// forward: y = layer(x). backward: on entry dx holds the gradient of y, on return the gradient of x, in the
// same memory, which is large enough for either; parameter gradients are written or added to g, where the
// tensor of a frozen parameter is empty. A backward pass uses the tensors that the last forward pass of the
// same layer saved, so each micro-batch in flight needs its own set of layers. Parameters are declared once,
// however many sets there are.
//
// The last layer writes losses in place of y, or logits or states if the call has a tensor for them. Its
// backward pass computes the losses too: training skips its forward pass, evaluation runs only its forward
// pass.

#include <functional>
#include <memory>
#include <vector>

#include "model/config.h"
#include "model/layer_call.h"
#include "runtime/arena.h"
#include "runtime/param.h"

namespace flatshard {

class Layer {
 public:
  virtual ~Layer() = default;
  // The shape of y; for the last layer, which has no y, the shape of x.
  virtual Shape output(const RowCounts& rows) const = 0;
  virtual void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) = 0;
  virtual void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                        const Tensor& x) = 0;
  // This layer for another set, with the same parameters.
  virtual std::unique_ptr<Layer> clone() const = 0;
};

// A layer whose output has one row for each token.
class TextLayer : public Layer {
 public:
  explicit TextLayer(const ModelConfig& config) : hidden_(config.hidden) {}
  Shape output(const RowCounts& rows) const override { return {rows.tokens, hidden_}; }

 protected:
  int64_t hidden_;
};

// The gradient of a layer's input, in the memory of the gradient of its output.
inline Tensor gradient_of_input(const Tensor& dx, const Tensor& x) {
  return {dx.data, dx.dtype, x.shape, dx.device};
}

// A block is one layer, or two: attention and MLP, each with the norm before it.
enum class LayerCut { blocks, halves };

class Model {
 public:
  // A model with one set of layers. Allocates the rotary tables, which last as long as the model, from
  // `tables`: for `positions` positions, by default for config.context, or else for all positions of the
  // model.
  Model(const ModelConfig& config, Arena& tables, LayerCut cut = LayerCut::blocks, int64_t positions = 0);

  // Adds sets of layers until there are `count` of them. The added sets contain only the layers for which
  // has(layer) is true.
  void add_layer_sets(int count, const std::function<bool(int layer)>& has);

  const ModelConfig& config() const { return config_; }
  int layer_count() const { return static_cast<int>(param_list_of_.size()); }
  // The index of the embedding; the layers before it read images.
  int embedding_layer() const { return embedding_layer_; }
  int layers_of_block() const { return cut_ == LayerCut::halves ? 2 : 1; }  // layers of a block of the text
  Layer& layer(int i, int set = 0) { return *layers_[static_cast<size_t>(set)][static_cast<size_t>(i)]; }
  Shape output(int layer, const RowCounts& rows) const {
    return layers_.front()[static_cast<size_t>(layer)]->output(rows);
  }
  // The shape of the largest output of layers [first, end).
  Shape largest_output(int first, int end, const RowCounts& rows) const;
  int param_list_of(int layer) const { return param_list_of_[static_cast<size_t>(layer)]; }
  const std::vector<ParamList>& param_lists() const { return param_lists_; }
  std::vector<ParamList>& param_lists() { return param_lists_; }
  int64_t parameter_count() const;
  // The parameters that one token meets, which are only a share of the experts.
  int64_t active_parameter_count() const;

  // Computes the rotary tables. The arena must be committed.
  void fill_tables(Stream& stream);

 private:
  using Layers = std::vector<std::unique_ptr<Layer>>;
  Layers make_layers();
  void add_vision_layers(Layers& layers);
  Tensor rope_table_of(int64_t block) const;  // empty if there is no rotation

  ModelConfig config_;
  LayerCut cut_;
  // window_rope_table_ is for blocks with window_rope_theta, tower_rope_table_ for patches.
  Tensor rope_table_, window_rope_table_, tower_rope_table_;
  int embedding_layer_;
  std::vector<ParamList> param_lists_;
  std::vector<int> param_list_of_;
  std::vector<Layers> layers_;  // sets of layers; null if a set lacks the layer
};

// The parameters of a model: [parameter list][parameter].
using ParamTensors = std::vector<std::vector<Tensor>>;

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena);

}  // namespace flatshard
