// The project's products by the machine's cuBLASLt: memory errors, and timed algorithms.
// tests/kernels/cuda_kernels_test.cpp checks their values.

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/tuned_products.h"
#include "ptx_vm/ptx_vm.h"
#include "runtime/memory.h"
#include "runtime/stopwatch.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr int64_t kSize = 8;

// Two streams, products on either, and one scratch arena.
class TwoStreams {
 public:
  TwoStreams() {
    StreamSet planning(Device::cuda(0), {.planning = true});
    gemm(planning.add("plan"), scratch, product(0));
    scratch.commit();
  }
  Gemm product(int which) const {
    return {.c = on(which == 0 ? c : other_c), .a = on(a), .b = on(b), .transpose_b = true};
  }
  Tensor on(const Memory& memory) const {
    return {memory.data(), DType::f32, {kSize, kSize}, memory.device()};
  }

  StreamSet streams{Device::cuda(0)};
  Stream &first = streams.add("first"), &second = streams.add("second", StreamRole::comm);
  Memory a = matrix(), b = matrix(), c = matrix(), other_c = matrix();
  Arena scratch{"scratch", Device::cuda(0)};

 private:
  static Memory matrix() { return Memory(Device::cuda(0), kSize * kSize * int64_t{sizeof(float)}); }
};

// The finding of work that must fail.
Finding finding_in(const std::function<void(TwoStreams&)>& work) {
  TwoStreams two;
  zero(two.first, two.on(two.a));
  CHECK_THROWS_AS(work(two), Error);
  const std::vector<Finding> all = take_findings();
  REQUIRE(all.size() == 1);
  CHECK(all[0].text.find("matrix product") != std::string::npos);
  return all[0];
}

}  // namespace

TEST_CASE("a matrix product ordered by its stream or by an event has no findings") {
  TwoStreams two;
  for (const Memory* m : {&two.a, &two.b}) zero(two.first, two.on(*m));
  gemm(two.first, two.scratch, two.product(0));
  gemm(two.first, two.scratch, two.product(1));
  Event done;
  two.first.record(done);
  two.second.wait(done);
  gemm(two.second, two.scratch, two.product(0));
  two.streams.sync_all();
  CHECK(take_findings().empty());
}

TEST_CASE("a TF32 product rounds its factors to 11 bits, an fp32 product does not") {
  TwoStreams two;
  std::vector<float> a, rounded, one, c(kSize * kSize);
  for (int64_t i = 0; i < kSize * kSize; ++i) {
    a.push_back(1.0f + static_cast<float>(i) * 0x1p-14f);
    rounded.push_back(std::round(a.back() * 1024) / 1024);
    one.push_back(i / kSize == i % kSize ? 1.0f : 0.0f);
  }
  const Shape shape{kSize, kSize};
  copy(two.first, two.on(two.a), tensor_of(a.data(), shape));
  copy(two.first, two.on(two.b), tensor_of(one.data(), shape));
  for (const bool tf32 : {false, true, false}) {
    Gemm product = two.product(0);
    product.tf32 = tf32;
    gemm(two.first, two.scratch, product);
    copy(two.first, tensor_of(c.data(), shape), two.on(two.c));
    two.first.sync();
    CHECK(c == (tf32 ? rounded : a));
  }
  CHECK(a != rounded);
  CHECK(take_findings().empty());
}

TEST_CASE("products of one shape may have different factors") {
  TwoStreams two;
  std::vector<float> a(kSize * kSize), c(kSize * kSize);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  const Shape shape{kSize, kSize};
  copy(two.first, two.on(two.a), tensor_of(a.data(), shape));
  std::vector<float> one(kSize * kSize);
  for (int64_t i = 0; i < kSize; ++i) one[static_cast<size_t>(i * kSize + i)] = 1;
  copy(two.first, two.on(two.b), tensor_of(one.data(), shape));
  zero(two.first, two.on(two.c));
  float sum = 0;
  for (const float alpha : {1.0f, 0.75f, -3.0f, 1.0f}) {
    CAPTURE(alpha);
    Gemm product = two.product(0);
    product.alpha = alpha;
    product.accumulate = true;
    gemm(two.first, two.scratch, product);
    copy(two.first, tensor_of(c.data(), shape), two.on(two.c));
    two.first.sync();
    sum += alpha;
    for (size_t i = 0; i < a.size(); ++i) CHECK(c[i] == sum * a[i]);
  }
  CHECK(take_findings().empty());
}

TEST_CASE(
    "a timed product runs by the fastest algorithm of its file, but not by that of another GPU or version") {
  const Device gpu = Device::cuda(0);
  StreamSet streams(gpu);
  Stream& timing = streams.add("timing");
  forget_planned_products();  // earlier tests have planned some
  TwoStreams two;
  for (const Memory* m : {&two.a, &two.b}) zero(two.first, two.on(*m));
  const auto seconds_with = [&](const std::string& text, bool is_used) {
    CHECK(use_tuned_products(gpu, text, "products").empty() != is_used);
    Stopwatch watch(two.first);
    watch.start();
    gemm(two.first, two.scratch, two.product(0));
    watch.stop();
    return watch.seconds();
  };
  const double before = seconds_with("", false);
  const std::string timed = tune_products(timing, "", "products");
  CHECK(std::count(timed.begin(), timed.end(), '\n') == 1);
  CHECK(seconds_with(timed, true) < before);
  // Nothing is timed again, and the lines of others are kept.
  const auto instead = [&](const std::string& part, const std::string& other) {
    std::string changed = timed;
    REQUIRE(changed.find(part) != std::string::npos);
    return changed.replace(changed.find(part), part.size(), other);
  };
  const std::string of_other = instead("PTX VM sm_90a", "NVIDIA H200"),
                    of_older = instead("cuBLASLt ", "cuBLASLt 1");
  for (const std::string& foreign : {of_other, of_older}) {
    CHECK(seconds_with(foreign, false) == before);
    CHECK(tune_products(timing, foreign, "products") == foreign);
  }
  CHECK(seconds_with(of_other + timed, true) < before);
  // The algorithm of another product, under the name of this one.
  CHECK(seconds_with(instead("8 8 8 f32", "8 8 9 f32"), true) == before);
  const size_t algorithm = timed.find('\t', timed.find("256")) + 1;
  std::string damaged = timed;
  damaged[algorithm] = damaged[algorithm] == '0' ? '1' : '0';
  CHECK(seconds_with(damaged, true) == before);
  CHECK(seconds_with("", false) == before);
  CHECK(take_findings().empty());
}

TEST_CASE("a matrix product that reads uninitialized memory is found") {
  const Finding finding = finding_in([](TwoStreams& two) { gemm(two.first, two.scratch, two.product(0)); });
  CHECK(finding.kind == FindingKind::uninitialised_read);
}

TEST_CASE("a matrix product that reads memory another stream writes is a race in every order") {
  for (const WorkOrder order :
       {WorkOrder::in_order, WorkOrder::comm_late, WorkOrder::comm_early, WorkOrder::random}) {
    const ScopedOptions scope({.stream_order = order});
    const Finding finding = finding_in([](TwoStreams& two) {
      zero(two.second, two.on(two.b));
      two.second.sync();
      zero(two.second, two.on(two.b));
      gemm(two.first, two.scratch, two.product(0));
      two.streams.sync_all();
    });
    CHECK(finding.kind == FindingKind::stream_race);
  }
}

TEST_CASE("two matrix products on two streams that share a workspace are a race") {
  const Finding finding = finding_in([](TwoStreams& two) {
    zero(two.first, two.on(two.b));
    two.first.sync();
    gemm(two.first, two.scratch, two.product(0));
    gemm(two.second, two.scratch, two.product(1));
  });
  CHECK(finding.kind == FindingKind::stream_race);
}
