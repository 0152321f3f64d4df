#pragma once
// A model folder, as Hugging Face transformers writes and reads it: config.json (hf_config.h) and
// model.safetensors, or several files with an index (checkpoint/tensor_folder.h), whose tensors carry the
// names that the model gives its parameters.

#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "model/model.h"
#include "train/models/hf_config.h"

namespace flatshard {

// The model folder that a command line means: `given` itself, or its folder model/ where it is a run's.
// Without one, that of the last run, whose path is the line in runs/latest, in `start` or the nearest folder
// above it that has such a file; a relative path there counts from the folder that holds runs/.
std::string find_model_folder(const std::string& given, const std::string& start = ".");

// The parameters of a whole model: [unit][parameter of the unit].
using ParamTensors = std::vector<std::vector<Tensor>>;

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena);

inline constexpr const char* kWeightsStem = "model";

// What model.safetensors holds: the parameters of all units in order. A tied head has no tensor of its own.
std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype);

}  // namespace flatshard
