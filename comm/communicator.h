#pragma once
// What ranks say to each other, as work on a stream. Every rank of a communicator makes the same calls in the
// same order. Tensors are given whole: their first dimension, or their elements, divide by the number of
// ranks.

#include <memory>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class World;

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // full = the shards of all ranks, in rank order; a shard may lie in its place in `full` already.
  virtual void all_gather(Stream& stream, const Tensor& full, const Tensor& shard) = 0;
  // received = part `rank` of every rank's `sent`, in rank order. Both are `size` parts of one length.
  virtual void all_to_all(Stream& stream, const Tensor& received, const Tensor& sent) = 0;
  // shard = part `rank` of the sum of every rank's `full`, in the order in which the library adds. f32 only.
  virtual void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full) = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

// Part `index` of `parts` equal parts of a tensor.
Tensor part_of(const Tensor& t, int index, int parts);

// A communicator over all ranks of the world, or over those that give the same color, in the order of their
// ranks. Each one is a conversation of its own: calls on two of them may be in flight together.
std::unique_ptr<Communicator> make_communicator(World& world, int color = 0);

}  // namespace flatshard
