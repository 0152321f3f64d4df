#pragma once
// Small models of every family for tests: configs with the features of the family, parameters that all differ
// from their initial values, and model folders.

#include <string>

#include "hub/resident_model.h"

namespace flatshard::test {

// Two layers, grouped heads, a window of 5 for mistral, head_dim = 6 for qwen3; tied if the family is.
ModelConfig small_model(const std::string& family, int64_t vocab = 40);

// Every parameter random and away from 0 and 1, the same at every call.
void fill_random(const ResidentModel& model, float deviation = 0.3f);

// config.json and model.safetensors in the folder, which is created if missing.
void write_model_folder(const std::string& folder, const ResidentModel& model);

}  // namespace flatshard::test
