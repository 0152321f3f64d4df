#pragma once
// The layers that each pipeline stage owns: parallel.device_map. The parts of a model are its embedding with
// all layers that read images, its blocks, and its head with the last norm; none of them is ever split.
//
//   auto             the largest stage has as few floating-point operations as possible
//   balanced         by bytes, as Hugging Face Accelerate counts: each stage but the last takes parts in
//                    order up to total / stages + 1.25 x the largest part
//   balanced_low_0   the same over stages - 1, and stage 0 takes only the parts that others leave
//   sequential:SIZE  each stage but the last takes parts in order up to SIZE, such as 20GB
//   a table          the stage of each prefix of parameter names; the longest prefix decides
//
// Sizes count two bytes per parameter, and 4-bit weights as they are stored. Each stage has at least one
// part. Tied embeddings belong to the last stage, with the head; the other stages divide the blocks.

#include <cstdint>
#include <span>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

class Model;

// Divides parts of these sizes into `count` consecutive ranges, each with at least one part, such that the
// largest sum is as small as possible. Returns the end of each range.
std::vector<int> even_ends(std::span<const double> sizes, int count);
// Fills devices with parts in order, each up to its limit; the last device takes the remaining parts. Returns
// the end of each range, which may be empty.
std::vector<int> filled_ends(std::span<const int64_t> sizes, std::span<const int64_t> limits);
// The limits of the kinds balanced and balanced_low_0 for all devices but the last. `leaf_mean` is the mean
// size of the modules that hold parameters.
std::vector<int64_t> balanced_limits(std::span<const int64_t> sizes, int64_t leaf_mean, int devices,
                                     bool low_0);

// The end of each of `chunks` ranges of the model's layers, for `stages` pipeline stages. With tied
// embeddings the first range begins after the embedding.
std::vector<int> chunk_ends(const DeviceMap& map, const Model& model, int64_t seq_len, int stages,
                            int chunks);

// The floating-point operations of each layer of the model for one token of a training step; a layer that
// reads images counts one patch.
std::vector<double> work_of_layers(const Model& model, int64_t seq_len);

}  // namespace flatshard
