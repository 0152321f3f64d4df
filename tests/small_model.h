#pragma once
// Small models of every family for tests: configs with the features of the family, parameters that all differ
// from their initial values, and model folders.

#include <string>

#include "hub/resident_model.h"

namespace flatshard::test {

// The config has two layers, grouped heads, a window of 5 for mistral, and head_dim = 6 for qwen3. Its head
// is tied if the family's is.
ModelConfig small_model(const std::string& family, int64_t vocab = 40);

// Makes every parameter random and away from 0 and 1. All calls make the same values.
void fill_random(const ResidentModel& model, float deviation = 0.3f);

// Writes config.json and model.safetensors into the folder, which is created if missing.
void write_model_folder(const std::string& folder, const ResidentModel& model);

}  // namespace flatshard::test
