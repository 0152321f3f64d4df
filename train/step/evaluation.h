#pragma once
// Evaluation loss: the mean over all targets of the evaluation data, on any number of ranks.

#include <functional>
#include <optional>
#include <string>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

// The same value on all ranks. Sequences are summed in order, so the result does not depend on the number of
// ranks or the batch size. After each batch every rank calls `interrupted`; if it returns true on any rank
// and batches remain, all ranks stop and the result is empty. An Error names `path` if the data has no
// targets.
std::optional<double> evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world,
                                      const std::function<bool()>& interrupted);

}  // namespace flatshard
