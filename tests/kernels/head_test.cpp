#include "kernels/head.h"

#include <array>
#include <vector>

#include "runtime/recording.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// A case of head_loss_backward with 150 tokens in chunks of `chunk`, which adds to dw or writes it.
Case case_by(DType dtype, int64_t chunk, bool accumulate = true) {
  constexpr int64_t N = 150, C = 72, V = 90;
  const auto fill_target = [](int64_t n, double) { return static_cast<double>(n % V); };
  const auto run = [=](Stream& stream, Arena& scratch, const bench::Tensors& t) {
    head_loss_backward(stream, scratch,
                       {.dx = t["dx"],
                        .dw = t["dw"],
                        .loss = t["loss"],
                        .x = t["x"],
                        .w = t["w"],
                        .targets = t["targets"],
                        .target_weights = t["weights"],
                        .chunk = chunk,
                        .accumulate = accumulate});
  };
  return {.op = "head_loss_backward",
          .shape = str("by ", chunk),
          .dtype = dtype,
          .args = {{"x", dtype, {N, C}, bench::Role::input},
                   {"w", dtype, {V, C}, bench::Role::input},
                   {"targets", DType::i32, {N}, bench::Role::constant, fill_target},
                   {"weights", DType::f32, {N}, bench::Role::constant},
                   {"loss", DType::f32, {N}, bench::Role::output},
                   {"dx", dtype, {N, C}, bench::Role::output},
                   {"dw", DType::f32, {V, C}, accumulate ? bench::Role::updated : bench::Role::output}},
          .run = run};
}

void call(Stream& stream, Arena& scratch, const HeadLossForward& a) { head_loss_forward(stream, scratch, a); }
void call(Stream& stream, Arena& scratch, const HeadLossBackward& a) {
  head_loss_backward(stream, scratch, a);
}

// Three tokens of two features, a vocabulary of four, chunks of two tokens.
struct Small {
  HeadLossBackward arguments() {
    return {.dx = tensor_of(dx, {3, 2}),
            .dw = tensor_of(dw, {4, 2}),
            .loss = tensor_of(loss, {3}),
            .x = tensor_of(x, {3, 2}),
            .w = tensor_of(w, {4, 2}),
            .targets = tensor_of(targets, {3}),
            .target_weights = tensor_of(weights, {3}),
            .chunk = 2};
  }
  // The Error of a planned and executed call.
  template <class Args>
  std::string error(const Args& a) {
    Arena scratch("scratch", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    return test::error_of([&] {
      call(planning.add("compute"), scratch, a);
      scratch.commit();
      call(stream, scratch, a);
    });
  }

  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
  float x[6] = {1, 2, 3, 4, 5, 6}, w[8] = {}, dx[6] = {}, dw[8] = {}, loss[3] = {}, weights[3] = {1, 1, 1};
  int32_t targets[3] = {0, 1, 2};
};

}  // namespace

TEST_CASE("the head matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("head")) {
    CAPTURE(label(c));
    const bool capped = c.shape.find("capped") != std::string::npos;
    CHECK(test::golden_error(c, str(capped ? "head_capped_" : "head_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("the head gives the same results for any chunk size") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case whole_case = case_by(dtype, 0);
    bench::Setup whole(whole_case);
    whole.run();
    for (const int64_t chunk : {1, 7, 64, 149}) {
      const Case c = case_by(dtype, chunk);
      CAPTURE(label(c));
      bench::Setup parts(c);
      parts.run();
      for (const char* output : {"loss", "dx", "dw"})
        CHECK(bench::max_error(parts.values(output), whole.values(output)) <= tolerance(c));
    }
  }
}

TEST_CASE("the head writes dw in its first chunk and adds the others") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case added_case = case_by(dtype, 0);
    bench::Setup added(added_case);
    const std::vector<double> before = added.values("dw");
    added.run();
    std::vector<double> expected = added.values("dw");
    for (size_t i = 0; i < expected.size(); ++i) expected[i] -= before[i];
    for (const int64_t chunk : {0, 7}) {
      const Case c = case_by(dtype, chunk, false);
      CAPTURE(label(c));
      bench::Setup written(c);
      written.run();
      CHECK(bench::max_error(written.values("dw"), expected) <= tolerance(c));
    }
  }
}

TEST_CASE("the head holds the logits of a chunk: 4096 tokens by default, and no more than there are") {
  const auto scratch_for = [](int64_t tokens, int64_t chunk) {
    Arena scratch("scratch", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    const auto plain = [](DType dtype, Shape shape) { return Tensor{nullptr, dtype, shape, Device::cpu()}; };
    const Tensor x = plain(DType::f32, {tokens, 16}), w = plain(DType::f32, {64, 16}),
                 per_token = plain(DType::f32, {tokens});
    head_loss_backward(planning.add("compute"), scratch,
                       {.dx = x,
                        .dw = w,
                        .loss = per_token,
                        .x = x,
                        .w = w,
                        .targets = plain(DType::i32, {tokens}),
                        .target_weights = per_token,
                        .chunk = chunk});
    return scratch.peak();
  };
  constexpr int64_t kLogits = 64 * 4;  // bytes per token
  CHECK(scratch_for(9000, 0) == scratch_for(9000, 4096));
  CHECK(scratch_for(9000, 0) >= 4096 * kLogits);
  CHECK(scratch_for(9000, 0) < 9000 * kLogits);
  CHECK(scratch_for(9000, 512) < 4096 * kLogits);
  CHECK(scratch_for(100, 0) == scratch_for(100, 100));
  CHECK(scratch_for(100, 512) == scratch_for(100, 100));
}

TEST_CASE("on a GPU the extents of the head's products are multiples of 8, but for the last rows of dw") {
  constexpr int64_t N = 64, C = 32;
  using Extents = std::array<int64_t, 3>;
  const auto products_of = [&](int64_t V, DType dtype) {
    const auto plain = [](DType type, Shape shape) { return Tensor{nullptr, type, shape, Device::cuda(0)}; };
    Recording recording;
    StreamSet planning(Device::cuda(0), {.planning = true, .recording = &recording});
    Arena scratch("scratch", Device::cuda(0));
    head_loss_backward(planning.add("compute"), scratch,
                       {.dx = plain(dtype, {N, C}),
                        .dw = plain(DType::f32, {V, C}),
                        .loss = plain(DType::f32, {N}),
                        .x = plain(dtype, {N, C}),
                        .w = plain(dtype, {V, C}),
                        .targets = plain(DType::i32, {N}),
                        .target_weights = plain(DType::f32, {N})});
    std::vector<Extents> products;
    for (const OpCall& op : recording.ops())
      if (op.name == "gemm") products.push_back({op.shape[0], op.shape[1], op.shape[2]});
    return products;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CHECK(products_of(88, dtype) == std::vector<Extents>{{N, 88, C}, {88, C, N}, {N, C, 88}});
    CHECK(products_of(90, dtype) ==
          std::vector<Extents>{{N, 88, C}, {N, 8, C}, {88, C, N}, {2, C, N}, {N, C, 88}, {N, C, 8}});
  }
}

TEST_CASE("the head reports a target outside the vocabulary with its token index and leaves dw unchanged") {
  Small s;
  s.targets[2] = 4;
  CHECK(s.error(s.arguments()) == "target 4 at 2 is outside the vocabulary of 4");
  s.targets[2] = 3;
  HeadLossBackward padded = s.arguments();
  padded.valid_vocab = 3;
  CHECK(s.error(padded) == "target 3 at 2 is outside the vocabulary of 3");
  for (const float dw : s.dw) CHECK(dw == 0.0f);
  CHECK(s.error(s.arguments()) == "");
}

TEST_CASE("the head reports a target outside the vocabulary in evaluation too") {
  Small s;
  s.targets[2] = 4;
  const HeadLossBackward a = s.arguments();
  CHECK(s.error(HeadLossForward{.loss = a.loss,
                                .x = a.x,
                                .w = a.w,
                                .targets = a.targets,
                                .target_weights = a.target_weights,
                                .chunk = 2}) == "target 4 at 2 is outside the vocabulary of 4");
}

TEST_CASE("the head reports shapes that do not fit") {
  Small s;
  HeadLossBackward a = s.arguments();
  a.w = tensor_of(s.w, {2, 4});
  CHECK(s.error(a) ==
        "head_loss_backward: w is f32 (2, 4), x is f32 (3, 2); w must be (V, C) with the dtype and last "
        "dimension of x");
  a = s.arguments();
  a.target_weights = tensor_of(s.weights, {2});
  CHECK(s.error(a) ==
        "head_loss_backward: target_weights is f32 (2), must be f32 with one element for each of 3 tokens");
  a = s.arguments();
  a.dw = tensor_of(s.dw, {2, 4});
  CHECK(s.error(a) == "head_loss_backward: dw is f32 (2, 4), must be f32 (4, 2) like w, or empty");
  a = s.arguments();
  a.chunk = -1;
  CHECK(s.error(a) == "head_loss_backward: chunk is -1, must be at least 0");
}
