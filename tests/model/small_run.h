#pragma once
// A small model on the CPU with unsharded parameters, and one forward and backward pass over a text.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/image_rows.h"
#include "model/model.h"
#include "tests/golden.h"

namespace flatshard::test {

class SmallRun {
 public:
  using Golden = std::map<std::string, GoldenTensor>;
  using Fill = std::function<void(const Model&, const ParamTensors&, Stream&)>;

  // Runs on the golden file's "tokens" and "targets" (sequences, length), and on its images if the model
  // reads images. `fill` initializes the parameters.
  // `balance` is the factor of the loss that balances experts (Routing).
  SmallRun(const ModelConfig& config, const Golden& golden, DType dtype, bool recompute, const Fill& fill,
           float balance = 0);

  double loss() const;           // sum over all targets
  std::vector<double> logits();  // (sequences, length, vocab), from another forward pass
  const ParamTensors& gradients() const { return gradients_; }
  const Tensor& expert_counts() const { return routing_.counts; }
  const Tensor& router_losses() const { return routing_.losses; }  // (N, 2), if balance is not 0
  // The largest relative error of a gradient against "grad." + name in the file, and the name of its
  // parameter.
  std::pair<double, std::string> gradient_error(const Golden& golden) const;

 private:
  void allocate();
  void allocate_images();
  void fill_images(const Golden& golden);
  Frames frames() const;
  void fill_inputs(const Golden& golden);
  LayerCall call(Stream& stream);
  void step(Stream& stream);
  void forward(Stream& stream);
  ParamView view(const ParamTensors& tensors, int layer) const {
    return ParamView(tensors[static_cast<size_t>(model_.param_list_of(layer))]);
  }

  DType dtype_;
  bool recompute_;
  int64_t sequences_, length_;
  StreamSet streams_{Device::cpu()};
  Stream& stream_ = streams_.add("compute");
  Arena memory_{"all", Device::cpu()}, saved_{"saved", Device::cpu()}, scratch_{"scratch", Device::cpu()};
  Model model_;
  ImageInputs images_;
  float balance_;
  Routing routing_;
  RowCounts rows_;
  bool has_axes_ = false;  // token positions have several axes
  Tensor tokens_, positions_, targets_, boundaries_, weights_, losses_, logits_, dx_;
  std::vector<Tensor> x_;
  ParamTensors parameters_, gradients_;
};

}  // namespace flatshard::test
