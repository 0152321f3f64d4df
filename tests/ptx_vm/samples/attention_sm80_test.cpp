// Attention on tensor cores against the CPU twin. In ptx_vm_tests it runs on the PTX machine, in
// flatshard_tests of a build with CUDA on a GPU.

#include "tests/ptx_vm/samples/attention_sm80.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bench/case.h"
#include "tests/ptx_vm/device_array.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/ptx_vm/samples/numbers.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// Values of v are below one, and so are p and o. Each side rounds p and o to bf16, by at most 2^-9 of one: p
// at another scale than the other side, since its maximum so far is that of other tiles.
constexpr float kOutputTolerance = 4 * 0x1p-9f;
// Scores are sums of 128 products of order one at most, which differ in the order of adding; 2^x is good to
// 2^-22 there.
constexpr float kLseTolerance = 2e-5f;

struct Setting {
  std::string name;
  std::vector<int32_t> cu, cu_kv;  // documents; cu_kv empty: the same
  int64_t Hq, Hkv, D;
  bool causal = true;
  int64_t window = 0;
  bool packed = false;  // q, k and v are heads of one tensor
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{
      {"causal documents of odd lengths", {0, 1, 64, 64, 194}, {}, 2, 1, 64},
      {"causal, heads of 128", {0, 97, 226}, {}, 1, 1, 128},
      {"all keys, heads of 128", {0, 65, 70}, {}, 2, 2, 128, false},
      {"all keys of documents with more keys than queries", {0, 3, 70}, {0, 130, 197}, 1, 1, 64, false},
      {"the last queries of longer documents", {0, 3, 70}, {0, 130, 201}, 2, 1, 64},
      {"queries that see nothing", {0, 70}, {0, 5}, 1, 1, 64},
      {"a document without keys", {0, 9, 12}, {0, 9, 9}, 1, 1, 64},
      {"a window", {0, 290}, {}, 1, 1, 64, true, 37},
      {"q, k and v packed", {0, 77}, {}, 2, 1, 64, true, 0, true},
  };
  return all;
}

struct Results {
  std::vector<bf16> o;
  std::vector<float> lse;
};

// The operands of one setting, wherever their memory lies.
struct Pointers {
  bf16 *o, *q, *k, *v;  // packed: all in q
  float* lse;
  int32_t *cu, *cu_kv;
};

AttentionForward call(const Setting& s, const Pointers& p, Device device) {
  const int64_t rows = s.cu.back(), keys = s.cu_kv.empty() ? rows : s.cu_kv.back();
  const auto count = static_cast<int64_t>(s.cu.size());
  const Tensor q = tensor_of(p.q, {rows, s.packed ? s.Hq + 2 * s.Hkv : s.Hq, s.D}, device);
  return {.o = tensor_of(p.o, {rows, s.Hq, s.D}, device),
          .lse = tensor_of(p.lse, {s.Hq, rows}, device),
          .q = {q, 0, s.Hq},
          .k = s.packed ? Heads(q, s.Hq, s.Hkv) : Heads(tensor_of(p.k, {keys, s.Hkv, s.D}, device)),
          .v = s.packed ? Heads(q, s.Hq + s.Hkv, s.Hkv) : Heads(tensor_of(p.v, {keys, s.Hkv, s.D}, device)),
          .mask = {.cu_seqlens = tensor_of(p.cu, {count}, device),
                   .cu_seqlens_kv = s.cu_kv.empty() ? Tensor{} : tensor_of(p.cu_kv, {count}, device),
                   .causal = s.causal,
                   .window = s.window},
          .scale = 1 / std::sqrt(static_cast<float>(s.D))};
}

struct Inputs {
  explicit Inputs(const Setting& s)
      : q(numbers(s.cu.back() * (s.packed ? s.Hq + 2 * s.Hkv : s.Hq) * s.D, 1)),
        k(numbers((s.cu_kv.empty() ? s.cu : s.cu_kv).back() * s.Hkv * s.D, 2)),
        v(numbers((s.cu_kv.empty() ? s.cu : s.cu_kv).back() * s.Hkv * s.D, 3)) {}
  std::vector<bf16> q, k, v;
};

Results empty_results(const Setting& s) {
  return {std::vector<bf16>(static_cast<size_t>(s.cu.back() * s.Hq * s.D)),
          std::vector<float>(static_cast<size_t>(s.cu.back() * s.Hq))};
}

Results on_host(Setting s) {
  Inputs in(s);
  Results out = empty_results(s);
  const AttentionForward a = call(
      s, {out.o.data(), in.q.data(), in.k.data(), in.v.data(), out.lse.data(), s.cu.data(), s.cu_kv.data()},
      Device::cpu());
  StreamGroup planning(Device::cpu(), {.planning = true}), streams(Device::cpu());
  Arena scratch("scratch", Device::cpu());
  attention_forward(planning.add("compute"), scratch, a);
  scratch.commit();
  attention_forward(streams.add("compute"), scratch, a);
  return out;
}

Results on_device(const Setting& s) {
  const Inputs in(s);
  const Results out = empty_results(s);
  const DeviceArray<bf16> o(out.o.size()), q(in.q), k(in.k), v(in.v);
  const DeviceArray<float> lse(out.lse.size());
  const DeviceArray<int32_t> cu(s.cu), cu_kv(s.cu_kv);
  StreamGroup streams(Device::cuda(0));
  Stream& stream = streams.add("compute");
  attention_sm80_forward(
      stream, call(s, {o.data, q.data, k.data, v.data, lse.data, cu.data, cu_kv.data}, Device::cuda(0)));
  stream.sync();
  return {o.values(), lse.values()};
}

template <class T>
float largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    if (x == y) continue;  // infinities too
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE("attention on tensor cores equals the CPU twin") {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const Setting& s : settings()) {
    CAPTURE(s.name);
    const Results expected = on_host(s);
    for_every_order_of_sums([&] {
      const Results got = on_device(s);
      CHECK(largest_difference(got.o, expected.o) <= kOutputTolerance);
      CHECK(largest_difference(got.lse, expected.lse) <= kLseTolerance);
    });
  }
}

TEST_CASE("attention on tensor cores gives the same bits in every order, without conflicts of banks") {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const Setting& s : settings()) {
    CAPTURE(s.name);
    Results first;
    expect_no_bank_conflicts([&] { first = on_device(s); });
    for_every_order([&] {
      const Results again = on_device(s);
      CHECK(same_bits(again.o, first.o));
      CHECK(same_bits(again.lse, first.lse));
    });
  }
}
