#pragma once
// An unsharded model on one device, with all parameters resident in one dtype, for generation and tools.
// Memory is planned first and then allocated exactly. The caller fills in the parameters.

#include "hub/model_folder.h"

namespace flatshard {

class ResidentModel {
 public:
  // Fills the model's tables on the stream's device.
  ResidentModel(const ModelConfig& config, DType dtype, Stream& stream);

  Model& model() { return model_; }
  const Model& model() const { return model_; }
  const ParamTensors& parameters() const { return parameters_; }
  DType dtype() const { return dtype_; }
  ParamView view(int layer) const {
    return ParamView(parameters_[static_cast<size_t>(model_.param_list_of(layer))]);
  }
  int64_t bytes() const { return memory_.peak(); }

 private:
  DType dtype_;
  Arena memory_;
  Model model_;
  ParamTensors parameters_;
};

}  // namespace flatshard
