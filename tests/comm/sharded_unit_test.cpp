// The life cycle of units over several steps without host synchronization, for every policy in every stream
// order: the contract of sharded_unit.h holds by its events alone. A synthetic model reads every value and
// writes every gradient but one; the other ranks are mirrors of this one.

#include "comm/sharded_unit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "build_config.h"
#include "runtime/memory.h"
#include "tests/comm/mirror_communicator.h"
#include "tests/test.h"
#include "train/step/memory_plan.h"
#include "train/step/optimizer.h"

using namespace flatshard;
using test::MirrorCommunicator;

namespace {

constexpr int kUnits = 6, kSteps = 2;
constexpr size_t kNorm = 1;

// The first and the last are root units; one unit is frozen, another partly frozen. Every tested rank owns a
// part of each unit.
std::vector<ParamList> make_params() {
  std::vector<ParamList> units(kUnits);
  for (int i = 0; i < kUnits; ++i) {
    const auto add = [&](const char* name, const Shape& shape, bool decay, bool trainable) {
      units[static_cast<size_t>(i)].add({.name = str("unit", i, '.', name),
                                         .shape = shape,
                                         .init = Init::normal(0.5f),
                                         .decay = decay,
                                         .trainable = trainable});
    };
    add("weight", {151, 103 + i}, true, i != 2);
    add("norm", {65}, false, i != 2 && i != 3);
  }
  return units;
}

std::vector<UnitRole> make_roles() {
  std::vector<UnitRole> roles(kUnits);
  for (int i = 0; i < kUnits; ++i)
    roles[static_cast<size_t>(i)] = {.index = i, .layers = 1, .root = i == 0 || i == kUnits - 1};
  return roles;
}

struct Case {
  UnitOptions options;
  RankGroups groups;
  int depth;
  bool prefetch;
  bool two_levels = false;  // the four ranks of a group are two on each of two hosts
};

// One rank's units, optimizer and streams.
class Workbench {
 public:
  Workbench(const Case& c, StreamOrder order, MemoryPlan& memory, bool planning)
      : case_(c),
        streams_(Device::cpu(), {.order = order, .planning = planning}),
        compute_(streams_.add("compute")),
        gather_(streams_.add("gather", StreamRole::comm)),
        reduce_(streams_.add("reduce", StreamRole::comm)),
        copies_{streams_.add("to device", StreamRole::comm), streams_.add("to host", StreamRole::comm)},
        shared_(params_, roles_, {group(), group(), group(), replicas_}, c.options, memory.units(),
                c.options.offload || c.options.page_state_from ? std::optional(copies_) : std::nullopt) {
    for (const UnitRole& role : roles_)
      units_.emplace_back(params_[static_cast<size_t>(role.index)], role, shared_);
    config_.weight_decay = 0.1;
    NormOrder norm{one_stage_, {}};
    for (const ShardedUnit& unit : units_) norm.units.push_back({0, unit.trainable().shard_size()});
    optimizer_.emplace(config_, units_, shared_, norm);
    activation_ = memory.activations.alloc(DType::f32, {1});
    const Tensor m = units_[kUnits - 1].shard().state[0];
    snapshot_ = memory.activations.alloc(m.dtype, m.shape);
  }

  void run() {
    zero(compute_, activation_);
    for (ShardedUnit& u : units_) u.initialize(compute_, gather_, random_values(7));
    for (int step = 1; step <= kSteps; ++step) {
      for (int64_t micro = 0; micro < case_.options.micro_steps; ++micro) {
        for (int i = 0; i < kUnits; ++i) forward(i);
        for (int i = kUnits - 1; i >= 0; --i) backward(i, micro);
      }
      optimizer_->measure(compute_, 1);
      optimizer_->update(compute_, 1e-2, step, [&](ShardedUnit& u) { u.publish(compute_, gather_); });
      unit(0).prefetch(gather_);                                       // for the next step, as in step.cpp
      copy(compute_, snapshot_, units_[kUnits - 1].shard().state[0]);  // as a checkpoint does
    }
    streams_.sync_all();
  }

  // The complete final state; the gradient norm is at index kNorm.
  std::vector<float> result() {
    std::vector<float> all{*activation_.as<float>(), *optimizer_->norm().as<float>()};
    for (const ShardedUnit& unit : units_) {
      if (!unit.has_gradients()) continue;
      const OptimizerShard shard = unit.shard();
      append(all, shard.p);
      for (const Tensor& t : shard.state) append(all, t);
    }
    append(all, snapshot_);
    return all;
  }

 private:
  static void append(std::vector<float>& all, const Tensor& t) {
    if (t.dtype == DType::u8)
      all.insert(all.end(), t.as<uint8_t>(), t.as<uint8_t>() + t.size());
    else
      all.insert(all.end(), t.as<float>(), t.as<float>() + t.size());
  }

  RankGroup group() { return case_.two_levels ? RankGroup(inside_, between_) : RankGroup(group_); }
  ShardedUnit& unit(int i) { return units_[static_cast<size_t>(i)]; }

  void ahead(int i, int direction) {
    if (!case_.prefetch) return;
    for (int distance = 1; distance <= case_.depth; ++distance)
      if (const int next = i + direction * distance; next >= 0 && next < kUnits) unit(next).prefetch(gather_);
  }

  // The new activation depends on the old one and on all values of the unit.
  void forward(int i) {
    unit(i).prefetch(gather_);
    ahead(i, 1);
    const ParamView p = unit(i).acquire(compute_);
    const std::vector<Tensor> tensors{p[ParamId{0}], p[ParamId{1}]};
    compute_.run("forward", [tensors, a = activation_] {
      double sum = 0;
      for (const Tensor& t : tensors)
        visit_float(t.dtype, [&]<class T>() {
          const T* values = t.as<T>();
          for (int64_t k = 0; k < t.size(); ++k) sum += static_cast<double>(static_cast<float>(values[k]));
        });
      *a.as<float>() = 0.5f * *a.as<float>() + static_cast<float>(std::tanh(0.01 * sum));
    });
    unit(i).release(compute_);
  }

  // Gradients depend on the values, the activation and the lane.
  void backward(int i, int64_t micro) {
    unit(i).prefetch(gather_);
    const ParamView p = unit(i).acquire(compute_);
    ahead(i, -1);
    for (int lane = 0; lane < case_.options.lanes; ++lane) {
      std::vector<Gradient>& g = unit(i).grads(compute_, lane, micro);
      for (const ParamId id : {ParamId{0}, ParamId{1}}) {
        if (!unit(i).params()[id].trainable || (i == 1 && id.index == 1)) continue;  // this one has none
        Gradient& of_lane = g[static_cast<size_t>(id.index)];
        const bool adds = std::exchange(of_lane.written, true);
        compute_.run("backward", [value = p[id], gradient = of_lane.tensor, adds, a = activation_, lane] {
          visit_float(value.dtype, [&]<class T>() {
            const T* values = value.as<T>();
            float* sum = gradient.as<float>();
            const float slope = *a.as<float>() * static_cast<float>(lane + 1);
            for (int64_t k = 0; k < value.size(); ++k)
              sum[k] = (adds ? sum[k] : 0) + 0.1f * static_cast<float>(values[k]) + slope;
          });
        });
      }
    }
    unit(i).release(compute_);
    unit(i).reduce(compute_, reduce_, micro);
  }

  Case case_;
  std::vector<ParamList> params_ = make_params();
  std::vector<UnitRole> roles_ = make_roles();
  MirrorCommunicator group_{"group", case_.groups.size > 1 ? 1 : 0, case_.groups.size};
  MirrorCommunicator inside_{"inside", 1, 2}, between_{"between", 1, 2};
  MirrorCommunicator replicas_{"replicas", case_.groups.count() - 1, case_.groups.count()};
  MirrorCommunicator one_stage_{"stages", 0, 1};
  StreamSet streams_;
  Stream &compute_, &gather_, &reduce_;
  CopyStreams copies_;
  UnitResources shared_;
  std::vector<ShardedUnit> units_;
  OptimizerConfig config_;
  std::optional<Optimizer> optimizer_;
  Tensor activation_, snapshot_;
};

std::vector<float> outcome(const Case& c, StreamOrder order) {
  MemoryPlan memory(Device::cpu());
  Workbench(c, order, memory, true).run();
  memory.commit({.poison = true});
  Workbench bench(c, order, memory, false);
  bench.run();
  return bench.result();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Visits all cases; under a sanitizer, which makes a case take fifty times as long, one in seven.
template <class Visit>
void for_each_case(Visit&& visit) {
  const int64_t stride = *kSanitizer == '\0' ? 1 : 7;
  int64_t number = 0;
  for (const ShardPolicy& policy : shard_policies())
    for (const Reduction reduction : {Reduction::exact, Reduction::sequential, Reduction::native})
      for (const DType compute : {DType::f32, DType::bf16})
        for (const DType wire : {DType::f32, DType::bf16})
          for (const auto& [lanes, lane_steps] : {std::pair{1, 1}, {2, 1}, {1, 2}})
            for (const bool prefetch : {true, false}) {
              for (const bool offload : {false, true}) {
                if (lane_steps > 1 && compute == DType::f32) continue;  // as in bf16
                if (offload && !(policy.params && compute == DType::bf16 && wire == DType::f32)) continue;
                if (wire == DType::bf16 && (lanes > 1 || reduction == Reduction::native)) continue;
                if (number++ % stride != 0) continue;
                const int depth = 1 + lanes % 2;
                visit(Case{.options = {.policy = policy,
                                       .reduction = reduction,
                                       .compute = compute,
                                       .wire = wire,
                                       .lanes = lanes,
                                       .micro_steps = 3 * lane_steps,
                                       .lane_steps = lane_steps,
                                       .gather_slots = depth + 1,
                                       .keep_root = !prefetch || lanes == 1,
                                       .offload = offload,
                                       .poison = true},
                           .groups = groups_of(policy, 4, policy.strategy == Strategy::hybrid ? 2 : 0),
                           .depth = depth,
                           .prefetch = prefetch});
              }
            }
}

// Checks that every stream order has the outcome of `in_order`.
void check_orders(const Case& c, const std::vector<float>& in_order) {
  CHECK(in_order[kNorm] > 0);
  CHECK(std::all_of(in_order.begin(), in_order.end(), [](float x) { return std::isfinite(x); }));
  for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::comm_late, StreamOrder::comm_early}) {
    CAPTURE(static_cast<int>(order));
    CHECK(same_bits(outcome(c, order), in_order));
  }
}

}  // namespace

TEST_CASE("steps follow one another in every stream order without host synchronization") {
  for_each_case([](const Case& c) {
    CAPTURE(c.options.policy.strategy);
    CAPTURE(static_cast<int>(c.options.reduction));
    CAPTURE(c.options.compute);
    CAPTURE(c.options.wire);
    CAPTURE(c.options.lanes);
    CAPTURE(c.options.lane_steps);
    CAPTURE(c.prefetch);
    CAPTURE(c.options.offload);
    check_orders(c, outcome(c, StreamOrder::in_order));
  });
}

TEST_CASE("steps in two levels follow one another in every stream order") {
  for_each_case([](Case c) {
    c.two_levels = true;
    if (c.groups.size != 4 || c.options.reduction == Reduction::native || c.options.lanes > 1) return;
    CAPTURE(c.options.policy.strategy);
    CAPTURE(static_cast<int>(c.options.reduction));
    CAPTURE(c.options.compute);
    CAPTURE(c.options.wire);
    CAPTURE(c.prefetch);
    CAPTURE(c.options.offload);
    check_orders(c, outcome(c, StreamOrder::in_order));
  });
}

// Each unit but the frozen one has at least kPaged elements in a shard.
TEST_CASE("paged state has the bits of others in every stream order, for every optimizer") {
  constexpr int64_t kPaged = 4096;
  for (const ShardPolicy& policy : shard_policies())
    for (const OptimizerKind& optimizer : optimizer_kinds()) {
      CAPTURE(policy.strategy);
      CAPTURE(optimizer.name);
      Case c{.options = {.policy = policy, .micro_steps = 2, .optimizer = &optimizer, .poison = true},
             .groups = groups_of(policy, 4, policy.strategy == Strategy::hybrid ? 2 : 0),
             .depth = 1,
             .prefetch = true};
      const std::vector<float> unpaged = outcome(c, StreamOrder::in_order);
      check_orders(c, unpaged);
      c.options.page_state_from = kPaged;
      CHECK(same_bits(outcome(c, StreamOrder::in_order), unpaged));
      check_orders(c, unpaged);
    }
}
