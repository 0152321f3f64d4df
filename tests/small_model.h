#pragma once
// Small models of every family for tests: a config with what is particular to the family, parameters that are
// all different from where training starts, and the folder such a model is written as.

#include <string>

#include "train/models/resident_model.h"

namespace flatshard::test {

// Two layers, grouped heads, a window of 5 for mistral, a head size of its own for qwen3. Tied where the
// family is.
ModelConfig small_model(const std::string& family, int64_t vocab = 40);

// Every parameter random and away from 0 and 1, the same at every call.
void fill_random(const ResidentModel& model, float deviation = 0.3f);

// config.json and model.safetensors in the folder, made where there is none.
void write_model_folder(const std::string& folder, const ResidentModel& model);

}  // namespace flatshard::test
