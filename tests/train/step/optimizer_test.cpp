#include "train/step/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/dynamic_table.h"
#include "runtime/memory.h"
#include "tests/comm/mirror_communicator.h"
#include "tests/test.h"
#include "train/step/memory_plan.h"

using namespace flatshard;
using test::MirrorCommunicator;

namespace {

// Two sharded units, of which this is the first of some ranks; the others have the same.
class Workbench {
 public:
  Workbench(int ranks, std::vector<ParamList> params, const OptimizerConfig& config,
            const char* kind = "adamw")
      : params_(std::move(params)), config_(config), comm_("group", 0, ranks), alone_("replicas", 0, 1) {
    options_.optimizer = optimizer_named(kind)->row;
    options_.policy = {Strategy::full_shard, true, true, true};
    options_.compute = DType::bf16;
    build();
    memory_.commit({.poison = true});
    build();
    for (ShardedUnit& unit : units_) {
      unit.initialize(stream_, stream_, random_values(1));
      zero(stream_, unit.shard().g);
    }
  }

  Optimizer& optimizer() { return *optimizer_; }
  OptimizerShard shard(int unit) { return units_[static_cast<size_t>(unit)].shard(); }
  Stream& stream() { return stream_; }
  float norm() {
    optimizer_->measure(stream_, 1);
    return *optimizer_->norm().as<float>();
  }

 private:
  void build() {
    const std::vector<UnitRole> roles{{.index = 0}, {.index = 1}};
    units_.clear();
    shared_.emplace(params_, roles, Communicators{comm_, comm_, comm_, alone_}, options_, memory_.units(),
                    std::nullopt);
    for (const UnitRole& role : roles)
      units_.emplace_back(params_[static_cast<size_t>(role.index)], role, *shared_);
    NormOrder norm{alone_, {}};
    for (const ShardedUnit& unit : units_) norm.units.push_back({0, unit.trainable().shard_size()});
    optimizer_.emplace(config_, units_, *shared_, norm);
  }

  std::vector<ParamList> params_;
  OptimizerConfig config_;
  MirrorCommunicator comm_, alone_;
  UnitOptions options_;
  MemoryPlan memory_{Device::cpu()};
  StreamSet streams_{Device::cpu()};
  Stream& stream_ = streams_.add("stream");
  std::optional<UnitResources> shared_;
  std::vector<ShardedUnit> units_;
  std::optional<Optimizer> optimizer_;
};

ParamList one_param(int64_t size, bool decay = true) {
  ParamList params;
  params.add({.name = "p", .shape = {size}, .init = Init::constant(1), .decay = decay});
  return params;
}

}  // namespace

// Four ranks have the intervals b1 b2 b3 of one unit and a of another. The b add up to 4 (1 + 2^-24)^2 +
// 2^-50, and the sum of the a, less than half of the last bit of that, is lost: the root is rounded to 2. If
// the first unit took the intervals of the ranks in turn, the additions would round up, and the norm would be
// the next float.
TEST_CASE("the norm is summed in parameter order, independent of the ranks") {
  constexpr int64_t kInterval = FlatLayout::kShardMultiple;
  const auto fill = [](float* b, float* a) {
    b[0] = std::ldexp(1.0f, -24);                             // b1 = 2^-48
    b[1] = std::ldexp(1.0f, -26);                             //      + 2^-52
    b[kInterval] = b[kInterval + 1] = std::ldexp(1.0f, -12);  // b2 = 2^-23
    b[2 * kInterval] = 1;                                     // b3 = 1
    a[0] = std::ldexp(1.0f, -27);                             // a = 2^-54
    a[1] = a[2] = std::ldexp(1.0f, -28);                      //     + 2^-55
  };
  for (const int ranks : {1, 4}) {
    CAPTURE(ranks);
    Workbench bench(ranks, {one_param(4 * 3 * kInterval), one_param(4 * kInterval)}, {});
    for (int part = 0; part < 4 / ranks; ++part)
      fill(bench.shard(0).g.as<float>() + part * 3 * kInterval,
           bench.shard(1).g.as<float>() + part * kInterval);
    CHECK(bench.norm() == 2.0f);
  }
}

TEST_CASE("the norm is that of the unscaled gradients, and clips them") {
  OptimizerConfig config;
  config.grad_clip = 0.5;
  config.betas = {0, 0};  // so that m is the clipped gradient
  Workbench bench(4, {one_param(16384), one_param(100)}, config);
  bench.shard(0).g.as<float>()[5] = 3 * 1024;
  bench.optimizer().measure(bench.stream(), 1024);
  bench.optimizer().update(bench.stream(), 0.1, 1, [](ShardedUnit&) {});
  CHECK(*bench.optimizer().norm().as<float>() == 6);  // of four ranks
  CHECK(bench.shard(0).state[0].as<float>()[5] == doctest::Approx(0.25).epsilon(1e-6));
}

TEST_CASE("weights follow AdamW, decay where configured, and are rounded to the compute dtype") {
  constexpr double kLr = 0.1, kDecay = 0.25, kFloat = 1e-6;
  OptimizerConfig config;
  config.weight_decay = kDecay;
  config.grad_clip = 0;
  ParamList mixed;
  mixed.add({.name = "decays", .shape = {100}, .init = Init::constant(1)});
  mixed.add({.name = "stays", .shape = {100}, .init = Init::constant(1), .decay = false});
  Workbench bench(2, {mixed, one_param(10)}, config);
  const OptimizerShard shard = bench.shard(0);
  constexpr int64_t kStays = FlatLayout::kAlignment;
  double p = 1, m = 0, v = 0;
  for (int step = 1; step <= 3; ++step) {
    const double g = 0.3 * step;
    shard.g.as<float>()[3] = shard.g.as<float>()[kStays + 3] = static_cast<float>(g);
    bench.optimizer().measure(bench.stream(), 1);
    bench.optimizer().update(bench.stream(), kLr, step, [](ShardedUnit&) {});
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    p -= kLr * m / (1 - std::pow(0.9, step)) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
    CHECK(shard.p.as<float>()[kStays + 3] == doctest::Approx(p).epsilon(kFloat));
    CHECK(shard.p.as<float>()[kStays + 4] == 1);
    CHECK(shard.p.as<float>()[4] == doctest::Approx(std::pow(1 - kLr * kDecay, step)).epsilon(kFloat));
    CHECK(static_cast<float>(shard.copy.as<bf16>()[3]) == static_cast<float>(bf16(shard.p.as<float>()[3])));
  }
}

TEST_CASE("weights follow Lion with the betas of the config") {
  constexpr float kLr = 0.125f;
  OptimizerConfig config;
  config.grad_clip = 0;
  config.betas = {0.5, 0.75};
  Workbench bench(2, {one_param(100), one_param(10)}, config, "lion");
  const OptimizerShard shard = bench.shard(0);
  CHECK(shard.state[1].empty());
  float* const g = shard.g.as<float>();
  const auto update = [&](int64_t step) {
    bench.optimizer().measure(bench.stream(), 1);
    bench.optimizer().update(bench.stream(), kLr, step, [](ShardedUnit&) {});
  };
  g[3] = 8, g[4] = -8;
  update(1);
  CHECK(shard.state[0].as<float>()[3] == 2);
  CHECK(shard.p.as<float>()[3] == 1 - kLr);
  CHECK(shard.p.as<float>()[4] == 1 + kLr);
  CHECK(shard.p.as<float>()[5] == 1);
  g[3] = -1, g[4] = 3;  // less and more than the moment, 2 and -2
  update(2);
  CHECK(shard.state[0].as<float>()[3] == 1.25f);
  CHECK(shard.p.as<float>()[3] == 1 - 2 * kLr);
  CHECK(shard.p.as<float>()[4] == 1);
  CHECK(static_cast<float>(shard.copy.as<bf16>()[3]) == shard.p.as<float>()[3]);
}

TEST_CASE("units of few trained elements, or whose blocks would mix parameters, keep fp32 moments") {
  ParamList mixed = one_param(5000), joined = one_param(5000), aligned = one_param(5120);
  mixed.add({.name = "q", .shape = {10}, .init = {}});
  for (ParamList* params : {&joined, &aligned})
    params->add({.name = "q", .shape = {10}, .init = {}, .joined = true});
  const auto dtype = [](int ranks, const ParamList& params) {
    Workbench bench(ranks, {params, one_param(4096)}, {}, "adamw8bit");
    return bench.shard(0).state[0].dtype;
  };
  for (const int ranks : {1, 4}) {
    CAPTURE(ranks);
    CHECK(dtype(ranks, one_param(4096)) == DType::u8);
    CHECK(dtype(ranks, one_param(4095)) == DType::f32);
    CHECK(dtype(ranks, mixed) == DType::u8);
    CHECK(dtype(ranks, joined) == DType::f32);
    CHECK(dtype(ranks, aligned) == DType::u8);
  }
}

TEST_CASE("moments of 8 bits begin as zeros and stay zeros in the padding") {
  OptimizerConfig config;
  Workbench bench(2, {one_param(4100), one_param(10)}, config, "adamw8bit");
  const OptimizerShard shard = bench.shard(0);
  const Tensor &m = shard.state[0], &v = shard.state[1];
  const auto count = [](const Tensor& codes, uint8_t code) {
    return std::count(codes.as<uint8_t>(), codes.as<uint8_t>() + codes.size(), code);
  };
  CHECK(count(m, kSignedZero) == 4096);
  CHECK(count(v, 0) == 4096);
  std::fill_n(shard.g.as<float>(), 4090, 0.25f);
  for (int step = 1; step <= 2; ++step) {
    bench.optimizer().measure(bench.stream(), 1);
    bench.optimizer().update(bench.stream(), 0.1, step, [](ShardedUnit&) {});
    CHECK(count(m, 255) == 4090);
    CHECK(count(m, kSignedZero) == 6);
    CHECK(count(v, 0) == 6);
    CHECK(shard.state[2].as<float>()[15] == shard.state[2].as<float>()[0]);
  }
}
