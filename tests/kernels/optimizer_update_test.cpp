// What every optimizer of the table does with the argument that all of them take.

#include "kernels/optimizer_update.h"

#include <cmath>
#include <vector>

#include "comm/optimizer_kinds.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kCount = 5 * 256 + 100;

// A shard after one update, so that no tensor of its state has its initial bytes, and the argument of the
// second.
struct Run {
  explicit Run(const OptimizerKind& optimizer) : kind(&optimizer) {
    for (int i = 0; i < kCount; ++i) p[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
    for (const StateSpec& spec : kind->states())
      state.emplace_back(spec.size(kCount) * size_of(spec.dtype), spec.initial);
    fill_gradient(1);
    apply();
    fill_gradient(2);
  }

  void fill_gradient(int step) {
    for (int i = 0; i < kCount; ++i) g[i] = static_cast<float>((i * 53 + 7 * step) % 127 - 63) / 1024.0f;
  }

  // For the shard [begin, end).
  OptimizerUpdate args(int64_t begin = 0, int64_t end = kCount) {
    const Shape shape{end - begin};
    OptimizerUpdate a{.shard = {.p = tensor_of(p.data() + begin, shape),
                                .copy = {copy.data() + begin, DType::bf16, shape, Device::cpu()},
                                .g = tensor_of(g.data() + begin, shape),
                                .state = {},
                                .decay_end = end - begin},
                      .grad_scale = tensor_of(&grad_scale, {1}),
                      .skip = tensor_of(&skip, {1}),
                      .lr = 1.0 / 64,
                      .beta1 = kind->betas[0],
                      .beta2 = kind->betas[1],
                      .weight_decay = 0.5,
                      .step = 2};
    for (size_t i = 0; i < state.size(); ++i) {
      const StateSpec& spec = kind->states()[i];
      const Tensor whole{state[i].data(), spec.dtype, {spec.size(kCount)}, Device::cpu()};
      a.shard.state[i] = whole.slice(begin / spec.block, spec.size(end));
    }
    return a;
  }

  void apply() { apply(args()); }
  void apply(const OptimizerUpdate& a) const {
    StreamSet streams(Device::cpu());
    kind->update(streams.add("compute"), a);
  }

  bool operator==(const Run&) const = default;

  const OptimizerKind* kind;
  std::vector<float> p = std::vector<float>(kCount), g = p;
  std::vector<uint16_t> copy = std::vector<uint16_t>(kCount);
  std::vector<std::vector<unsigned char>> state;
  float grad_scale = 1.0f;
  int32_t skip = 0;
};

std::string error_with(const OptimizerKind& kind, void (*change)(OptimizerUpdate&)) {
  Run run(kind);
  OptimizerUpdate a = run.args();
  change(a);
  return test::error_of([&] { run.apply(a); });
}

}  // namespace

TEST_CASE("updates of shards have the bits of the update of the whole range, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run whole(kind), cut(kind);
    const int64_t block = kind.largest_block(), first = block > 1 ? block : 171, second = 4 * first;
    whole.apply();
    for (const auto& [begin, end] : {std::pair{int64_t{0}, first}, {first, second}, {second, kCount}})
      cut.apply(cut.args(begin, end));
    CHECK(cut == whole);
  }
}

TEST_CASE("the elements before decay_end decay and no others, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run decayed(kind), plain(kind), mixed(kind);
    OptimizerUpdate none = plain.args(), some = mixed.args();
    none.weight_decay = 0;
    some.shard.decay_end = 301;
    decayed.apply();
    plain.apply(none);
    mixed.apply(some);
    CHECK(decayed.p[300] != plain.p[300]);
    CHECK(decayed.p[301] != plain.p[301]);
    for (size_t i = 0; i < kCount; ++i) REQUIRE(mixed.p[i] == (i < 301 ? decayed.p[i] : plain.p[i]));
    CHECK(mixed.state == plain.state);
  }
}

TEST_CASE("the copy is the updated weights, rounded, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run run(kind);
    const std::vector<float> before = run.p;
    run.apply();
    CHECK(run.p != before);
    for (size_t i = 0; i < kCount; ++i) REQUIRE(run.copy[i] == bf16(run.p[i]).bits);
  }
}

TEST_CASE("an update without a copy has the bits of one with a copy, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run with(kind), without(kind);
    with.apply();
    OptimizerUpdate a = without.args();
    a.shard.copy = {};
    without.apply(a);
    CHECK(without.p == with.p);
    CHECK(without.state == with.state);
  }
}

TEST_CASE("nothing changes when the skip flag is set, whatever the gradients, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run run(kind);
    run.skip = 1;
    run.grad_scale = INFINITY;
    const Run before = run;
    run.apply();
    CHECK(run == before);
  }
}

TEST_CASE("the clip coefficient is read when the update runs, not when it is enqueued, for every optimizer") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    Run late(kind), direct(kind), unclipped(kind);
    direct.grad_scale = 0.25f;
    direct.apply();
    unclipped.apply();
    StreamSet streams(Device::cpu(), {.order = StreamOrder::comm_late});
    Stream& stream = streams.add("compute");
    kind.update(stream, late.args());
    late.grad_scale = 0.25f;
    stream.sync();
    CHECK(late == direct);
    CHECK(direct.state != unclipped.state);
  }
}

TEST_CASE("every optimizer names the tensor or value that is wrong") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    const std::string op = kind.name;
    CAPTURE(op);
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.beta2 = 1; }) ==
          op + ": beta2 is 1, must be in [0, 1)");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.shard.decay_end = 1381; }) ==
          op + ": decay_end is 1381, must be in [0, 1380]");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.lr = NAN; }) ==
          op + ": lr is nan, must be finite and not negative");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.weight_decay = -1; }) ==
          op + ": weight_decay is -1, must be finite and not negative");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.skip = a.grad_scale; }) ==
          op + ": skip is f32 (1), must be empty or one i32");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.shard.g = a.shard.g.slice(0, 7); }) ==
          op + ": g is f32 (7), must be f32, bf16 or f16 with 1380 elements");
    CHECK(error_with(kind, [](OptimizerUpdate& a) { a.shard.copy = a.shard.copy.slice(0, 7); }) ==
          op + ": copy is bf16 (7), must be empty, or f32, bf16 or f16 with 1380 elements");
    for (size_t i = 0; i < kind.states().size(); ++i) {
      Run run(kind);
      OptimizerUpdate a = run.args();
      a.shard.state[i] = a.shard.state[i].slice(0, 1);
      const std::string error = test::error_of([&] { run.apply(a); });
      const StateSpec& spec = kind.states()[i];
      CHECK(test::missing_from(error, {op + ": ", str(" is ", spec.dtype, " (1), must be ", spec.dtype,
                                                      " with ", spec.size(kCount), " elements")}) == "");
    }
  }
}
