#pragma once
// The loss of an evaluation's tokens: their mean, whichever rank computes which.

#include <functional>
#include <optional>
#include <string>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

// Over all batches of the data; on all ranks alike. Sums are in the order of the sequences, so neither ranks
// nor batches show. An Error names the file where it has no targets. Every rank asks `interrupted` after each
// batch: where one rank says so and batches are left, all ranks stop there, and there is no loss.
std::optional<double> evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world,
                                      const std::function<bool()>& interrupted);

}  // namespace flatshard
