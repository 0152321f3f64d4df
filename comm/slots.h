#pragma once
// Buffers shared by units, with events that signal when a buffer is free. The rings of slots limit how far a
// step runs ahead: streams wait for free slots, the host only where the order of CPU streams makes it wait
// (runtime/stream.h).

#include <optional>
#include <string>
#include <vector>

#include "comm/flat_layout.h"
#include "comm/optimizer_kinds.h"
#include "comm/shard_policy.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace flatshard {

// The methods of summing the gradients of lanes.
//   exact       one binary tree over all lanes: the same bits on any power-of-two number of ranks
//   sequential  lanes of later micro-steps are added in order, each summed over ranks in a tree. Saves one
//               buffer for each doubling of the lanes of a rank; the bits depend on the number of ranks
//   native      the reduction of the communication library
enum class Reduction { exact, sequential, native };
constexpr auto value_names(Reduction) { return std::array{"exact", "sequential", "native"}; }

struct UnitOptions {
  ShardPolicy policy{Strategy::no_shard, false, false, false};
  Reduction reduction = Reduction::exact;
  DType compute = DType::bf16;       // dtype of values and activations
  DType wire = DType::f32;           // dtype in which gradients are sent: f32 or bf16
  int lanes = 1;                     // lanes of a micro-step on one rank; more than 1 need wire = f32
  int64_t micro_steps = 1;           // micro-steps of an optimizer step
  int64_t lane_steps = 1;            // micro-steps that a lane spans; more than 1 need lanes = 1
  int gather_slots = 2;              // number of units that can be gathered at the same time
  bool keep_root = true;             // root units stay gathered for the whole step
  bool offload = false;              // shards, their sums and the optimizer's state live in host memory
  bool sync_initial_values = false;  // rank 0 initializes all ranks
  const OptimizerKind* optimizer = &optimizer_kinds().front();  // not used by all units: unit_optimizer()
  // The state of shards of at least this many elements is paged, beside any offload of all shards.
  std::optional<int64_t> page_state_from{};
  bool poison = false;  // tests: released parameters become NaN, so that a stale read fails

  int64_t lane_rounds() const { return micro_steps / lane_steps; }  // times that a rank completes lanes
};

// Returns whether a rank keeps only its shard of the parameters and gathers them for each layer. Offloaded
// parameters are gathered even in a group of one rank.
inline bool shards_values(const UnitOptions& options, RankGroups groups) {
  return options.policy.params && (groups.size > 1 || options.offload);
}

// The optimizer of a unit. If the state of options.optimizer has blocks, a unit with few trained elements
// uses the optimizer without blocks, whose size hardly matters there. So does a unit with a joined parameter
// that begins inside a block. The choice depends neither on the rank nor on the number of ranks.
const OptimizerKind& unit_optimizer(const FlatLayout& trainable, const UnitOptions& options);

// The arenas of a unit's tensors, by purpose.
struct UnitArenas {
  Arena& parameters;  // parameters in the compute dtype: unsharded, or this rank's shards
  Arena& gathered;    // slots for the gathered parameters of sharded units
  Arena& optimizer;   // masters and the optimizer's state
  Arena& paged;       // optimizer state in host memory
  Arena& gradients;   // gradient sums
  Arena& exchange;    // gradients in transit to the ranks that own their shards
};

// The role of a unit in a step.
struct UnitRole {
  std::string name{};
  int index = 0;
  int layers = 1;           // layers that use the unit
  int backward_layers = 1;  // layers that a backward pass reaches
  int in_flight = 1;        // micro-steps whose backward passes have reached some layers, but not all
  int ring = 0;             // index among the units that only its layer uses
  bool root = false;        // holds the parameters outside blocks; may stay gathered for a whole step
  bool replicated = false;  // parallel.replicate: unsharded on every rank under every policy
  // The number of parts of a unit of experts (parallel.expert_ranks). A rank gathers only its own part, and
  // computes that part's gradients for the lanes of as many consecutive ranks.
  int parts = 1;
};

// The ranks that share a unit's part, as groups.
inline RankGroups groups_of(const UnitRole& role, RankGroups all) {
  return {all.ranks / role.parts, all.size / role.parts};
}

// The gathered parameters of a unit: trainable ones in the compute dtype, frozen ones as bytes.
struct ValueSlot {
  Tensor trainable, frozen;
  Event free;
  bool taken = false;
};

// Slots for gathered parameters. Units of the same kind, each used by one layer, share a ring of slots. A
// unit that several layers use has its own slot, as does a root unit that stays gathered; other root units
// share one.
class GatherSlots {
 public:
  GatherSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles, RankGroups groups,
              const UnitOptions& options, UnitArenas arenas);

  // Takes the slot that `role` may fill next; its tensors fit the largest unit that shares the slot. Null if
  // that slot has not been released.
  ValueSlot* take(const UnitRole& role);
  // Makes every ring begin with its first slot again. All of its slots must be free.
  void rewind();

 private:
  struct Ring {
    std::vector<ValueSlot> slots;
    size_t turn = 0;
  };
  enum class Kind { ring, own, shared };
  Kind kind_of(const UnitRole& role) const;

  bool keep_root_;
  std::vector<Ring> rings_;
  std::vector<ValueSlot> own_;  // one for each unit
  ValueSlot shared_;
};

// Buffers for the unsharded gradients of a micro-step: rings of two slots, so that one is filled while the
// other is reduced. A unit that several layers use, whose gradients live from the first layer to the last,
// has its own slots, one for each micro-step in flight. If a lane spans several micro-steps, every unit has
// its own slots.
class GradientSlots {
 public:
  struct Slot {
    Tensor lanes;  // f32: one after another
    Event free;
  };

  GradientSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles, RankGroups groups,
                const UnitOptions& options, UnitArenas arenas);

  Slot& next(const UnitRole& role);

  // Buffers for the reduce stream, where one exchange follows the other.
  const Tensor& rounded() const { return rounded_; }    // (n) in the wire dtype
  const Tensor& received() const { return received_; }  // (n) f32; may hold n elements of a smaller dtype

 private:
  struct Ring {
    std::vector<Slot> slots;
    size_t turn = 0;
  };
  bool has_own(const UnitRole& role) const { return lane_steps_ > 1 || role.layers > 1; }

  int64_t lane_steps_;
  std::vector<Ring> rings_;
  std::vector<Ring> own_;  // one for each unit
  Tensor rounded_, received_;
};

// Returns whether the backward pass writes straight into a sum, because gradients need not be exchanged,
// added up or rounded first. A unit with several micro-steps in flight uses slots instead.
bool writes_sums_directly(const UnitOptions& options, RankGroups groups);
// Returns whether each rank sums unsharded gradients, which are exchanged once a step.
inline bool sums_are_unsharded(const UnitOptions& options, RankGroups groups) {
  return !options.policy.grads || groups.size == 1;
}

}  // namespace flatshard
