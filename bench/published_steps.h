#pragma once
// Training steps of other systems whose speed is published, to compare `bench --step` with: how their work
// differs from ours is stated beside each ratio.

#include <string>

#include "bench/step_bench.h"

namespace flatshard::bench {

// An Error if no speed of this model is published.
void check_published(const std::string& model);
// Lines that compare a step of ours, on this device, with the published speeds of its model.
std::string published_lines(const StepResult& ours, const std::string& device);

}  // namespace flatshard::bench
