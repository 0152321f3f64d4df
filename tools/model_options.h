#pragma once
// The options of every program that runs a model.

#include <string>

#include "hub/adapted_model.h"

namespace CLI {
class App;
}

namespace flatshard {

struct ModelOptions {
  std::string folder, adapter, dtype = "fp32", device = "auto";

  ModelSource source() const { return find_model(folder, adapter); }
  DType compute_dtype() const { return dtype == "bf16" ? DType::bf16 : DType::f32; }
};

// --adapter, --dtype and --device. The program declares the folder.
void declare_model_options(CLI::App& app, ModelOptions& options);

}  // namespace flatshard
