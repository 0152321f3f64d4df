#pragma once
// The ranks that share the shards of a tensor, or that hold replicas of a shard, and their collectives, in
// one level or, on several hosts, in two (levels.h). A RankGroup is a reference to one or two communicators.
//
// With two levels, the shards of the ranks that have the same place on their hosts are adjacent, so every
// exchange sends and receives contiguous parts: with 2 hosts of 2 ranks, r0 r1 | r2 r3, the shards belong to
// r0 r2 r1 r3. rank() is the index of this rank's shard.

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace flatshard {

// shard = (or +=) this rank's part of the sum of all ranks' `full`, added by the tree of
// kernels/ordered_sum.h in rank order.
struct ExactSum {
  Tensor shard;      // f32
  Tensor full;       // f32 or bf16: size() times the elements of the shard
  Tensor workspace;  // f32, as many elements as `full`
  bool accumulate = false;
};

class RankGroup {
 public:
  // A group with one level. Not explicit: one communicator is a group.
  RankGroup(Communicator& all) : inside_(&all) {}
  // A group with two levels: the ranks of `between` are the hosts, in order. With a single host it has one
  // level.
  RankGroup(Communicator& inside, Communicator& between)
      : inside_(&inside), between_(between.size() > 1 ? &between : nullptr), of_place_(&between) {}

  int size() const { return inside_->size() * hosts(); }
  int rank() const { return inside_->rank() * hosts() + (between_ ? between_->rank() : 0); }

  // In a group with two levels: the ranks that exchange first, and the ranks with the same place on other
  // hosts or in other expert groups. The latter own adjacent shards: part inside().rank() of inside().size().
  Communicator& inside() const { return *inside_; }
  RankGroup of_place() const { return *of_place_; }

  void all_gather(Stream& stream, const std::vector<GatherPart>& parts, const char* label) const;
  void all_gather(Stream& stream, const Tensor& full, const Tensor& shard, const char* label) const {
    all_gather(stream, {{full, shard}}, label);
  }
  void exact_sum(Stream& stream, const ExactSum& a, const char* label) const;
  // The library chooses the order of the sum; only for groups with one level.
  void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full, const char* label) const;
  // Sends the `t` of the rank with the first shard to all ranks.
  void broadcast(Stream& stream, const Tensor& t, const char* label) const;

  void log_to(CollectiveLog* log) const;
  void reserve_workspace(Arena& pinned) const;
  void connect(Stream& stream) const;
  void graph_launches() const;
  void graph_launched(Stream& stream) const;
  int64_t library_bytes(Transport transport) const;  // an estimate, as in communicator.h
  std::string transfers() const { return inside_->transfers(); }
  // Registers memory with each communicator while the results live.
  [[nodiscard]] std::vector<std::shared_ptr<void>> register_memory(const Tensor& memory) const;

 private:
  int hosts() const { return between_ ? between_->size() : 1; }
  // The shards of the ranks that have this rank's place on their hosts.
  Tensor part_of_place(const Tensor& full) const { return part_of(full, inside_->rank(), inside_->size()); }

  Communicator* inside_;
  Communicator* between_ = nullptr;
  Communicator* of_place_ = nullptr;  // `between`, also with a single host
};

}  // namespace flatshard
