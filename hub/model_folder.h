#pragma once
// A model folder, as written and read by Hugging Face transformers: config.json (hf_config.h) and
// model.safetensors, or several files with an index (checkpoint/tensor_folder.h). Tensors have the names of
// the model's parameters.

#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/hf_config.h"
#include "model/model.h"

namespace flatshard {

// Whether a model may be at this path: a folder, or a GGUF file (gguf/gguf_file.h), which every program
// accepts in place of a model folder.
bool is_model_path(const std::string& path);

// Resolves a model on a command line: a GGUF file, a model folder, or a run folder, which stands for its
// folder model/. If `given` is "", it is the model of the last run (last_run.h).
std::string find_model_folder(const std::string& given, const std::string& start = ".");

inline constexpr const char* kWeightsStem = "model";

// The tensors that files may have for all experts of a block. Writers of the model's files join those of
// written_joined(), which are the same or none.
std::vector<JoinedTensor> joined_experts(const ModelConfig& c);
std::vector<JoinedTensor> written_joined(const ModelConfig& c);

// The parameters that model.safetensors has, in order. A tied head has no tensor of its own.
std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype);

}  // namespace flatshard
