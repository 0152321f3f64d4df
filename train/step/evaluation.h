#pragma once
// The loss of an evaluation's tokens: their mean, whichever rank computes which.

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

// Over all batches of the data; on all ranks alike. Sums are in the order of the sequences, so neither ranks
// nor batches show. An Error names the file where it has no targets.
double evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world);

}  // namespace flatshard
