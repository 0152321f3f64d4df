#pragma once
// A model folder, as Hugging Face transformers writes and reads it: config.json (hf_config.h) and
// model.safetensors, or several files with an index (checkpoint/tensor_folder.h). Tensors have the names of
// the model's parameters.

#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/hf_config.h"
#include "model/model.h"

namespace flatshard {

// Resolves a model folder from a command line: `given`, or its folder model/ if it is a run folder. If
// `given` is "", the model of the last run (last_run.h).
std::string find_model_folder(const std::string& given, const std::string& start = ".");

// The parameters of a model: [parameter list][parameter].
using ParamTensors = std::vector<std::vector<Tensor>>;

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena);

inline constexpr const char* kWeightsStem = "model";

// The tensors of model.safetensors: all parameters in order. A tied head has no tensor of its own.
std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype);

}  // namespace flatshard
