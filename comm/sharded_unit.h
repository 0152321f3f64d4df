#pragma once
// The parameters of one unit over the life of a run. Each rank owns a shard of the flat buffer: fp32 masters
// and the optimizer's moments exist once over all ranks. The values to compute with, in the dtype of compute,
// are kept whole on every rank; gradients exist whole only between a stage's backward pass and their
// reduction. A step calls
//
//   p = acquire(compute)            the values; compute waits until they have been gathered
//   g = grads(compute, lane)        zeroed room for the gradients of a lane
//   reduce(compute, reduce, micro)  sums them over lanes and ranks into this rank's shard, on `reduce`
//   wait_reduced(compute)           the sums are there
//   publish(compute, gather)        the updated shards go to everybody, on `gather`
//
// Exact reduction. The lanes of a global batch are summed in one binary tree, in fp32, whoever computed them:
// the lanes of a micro-step on this rank, then those of the ranks (an all-to-all and a local sum), then the
// micro-steps, kept like the digits of a binary counter. The bits are the same for every number of ranks and
// every cut into micro-steps, as long as both are powers of two.
//
// Every record and every wait of this life cycle stands in sharded_unit.cpp.

#include <vector>

#include "comm/communicator.h"
#include "comm/flat_layout.h"
#include "runtime/arena.h"
#include "runtime/param.h"

namespace flatshard {

// The communicators of a run; each stream has a conversation of its own.
struct Communicators {
  Communicator& gather;
  Communicator& reduce;
};

struct UnitOptions {
  DType compute = DType::bf16;  // of values and activations
  DType wire = DType::f32;      // in which gradients travel, f32 or bf16
  int lanes = 1;                // of a micro-step on one rank; more than 1 need wire = f32
  int64_t micro_steps = 1;      // of an optimizer step
};

// Where the tensors of units come from, by purpose.
struct UnitArenas {
  Arena& parameters;  // values to compute with
  Arena& optimizer;   // masters and moments
  Arena& gradients;   // sums of this rank's shard
  Arena& exchange;    // whole gradients on their way to their owners
};

// Room for whole gradients, used by the units in turn: a ring of two, so that one is filled while the other
// is reduced. A unit of several stages, whose gradients live through the whole backward pass, has its own.
class GradientRoom {
 public:
  struct Slot {
    Tensor lanes;  // (lanes, n) f32
    Event free;
  };

  GradientRoom(const std::vector<ParamList>& units, const std::vector<int>& stages_of_unit, int ranks,
               const UnitOptions& options, UnitArenas arenas);

  Slot& next() { return ring_[static_cast<size_t>(turn_++ % 2)]; }
  Slot& own(int unit) { return own_[static_cast<size_t>(unit)]; }
  // On the reduce stream, where one exchange follows the other.
  const Tensor& rounded() const { return rounded_; }    // (n), in the wire's dtype
  const Tensor& received() const { return received_; }  // (n), in the wire's dtype

 private:
  Slot ring_[2];
  std::vector<Slot> own_;
  Tensor rounded_, received_;
  int64_t turn_ = 0;
};

class ShardedUnit {
 public:
  ShardedUnit(const ParamList& params, int index, int stages, Communicators comms, const UnitOptions& options,
              UnitArenas arenas, GradientRoom& room);

  // Fills masters (and frozen values) with their first values, zeroes the moments, and publishes.
  void initialise(Stream& compute, Stream& gather, uint64_t seed);

  ParamView acquire(Stream& compute);
  GradView grads(Stream& compute, int lane);
  // To be called once for each stage of the unit; acts when the last of them is done.
  void reduce(Stream& compute, Stream& reduce, int64_t micro);
  void wait_reduced(Stream& compute);
  void publish(Stream& compute, Stream& gather);

  // This rank's part of everything that the optimizer touches; all of one length.
  struct Shard {
    Tensor p, m, v, copy, g;  // copy is empty where values are the masters
    int64_t decay_end;        // elements before it decay
  };
  Shard shard() const;

  const ParamList& params() const { return *params_; }
  const FlatLayout& trainable() const { return trainable_; }
  const FlatLayout& frozen() const { return frozen_; }
  bool has_gradients() const { return !trainable_.empty(); }
  // All masters in the order of trainable(), for hashing between steps: valid until the next step begins.
  Tensor gather_masters(Stream& compute);
  // One tensor for each parameter, in the dtype of compute.
  const std::vector<Tensor>& values() const { return values_; }
  int rank() const { return comms_.gather.rank(); }
  int rank_count() const { return comms_.gather.size(); }

 private:
  // Whether the backward pass writes straight into the sums: one rank, one lane, nothing to round.
  bool direct() const { return direct_; }
  Tensor flat_gradients(int lane) const;
  void exchange(Stream& reduce, const Tensor& sum);
  void carry(Stream& stream, int64_t micro);

  const ParamList* params_;
  int index_, stages_;
  Communicators comms_;
  UnitOptions options_;
  GradientRoom* room_;
  FlatLayout trainable_, frozen_;
  bool direct_;

  Tensor values_flat_, frozen_flat_;  // whole, in the dtype of compute
  Tensor master_, m_, v_;             // shards
  std::vector<Tensor> sums_;          // shards: sums over 1, 2, 4 ... micro-steps as in a binary counter
  std::vector<Tensor> values_;        // one for each parameter
  std::vector<Tensor> gradients_;     // of the lane asked for last

  GradientRoom::Slot* slot_ = nullptr;  // from the first grads() of a micro-step to its reduce()
  std::vector<bool> lane_zeroed_;
  int stages_done_ = 0;
  int64_t sum_count_ = 0;  // how many of sums_ hold something
  Event ready_, reduced_, updated_, gathered_;
};

}  // namespace flatshard
