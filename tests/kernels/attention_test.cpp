#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs a forward and a backward pass on its own memory, with q, k, v and do in [-1, 1).
template <class T>
struct Attention {
  Attention(std::vector<int32_t> boundaries, int64_t query_heads, int64_t key_heads, int64_t head_size,
            std::vector<int32_t> key_boundaries = {})
      : cu(std::move(boundaries)),
        cu_kv(std::move(key_boundaries)),
        Hq(query_heads),
        Hkv(key_heads),
        D(head_size) {
    rows = cu.back();
    keys = cu_kv.empty() ? rows : cu_kv.back();
    for (auto* x : {&q, &o, &grad_o, &dq}) x->resize(static_cast<size_t>(rows * Hq * D));
    for (auto* x : {&k, &v, &dk, &dv}) x->resize(static_cast<size_t>(keys * Hkv * D));
    lse.resize(static_cast<size_t>(Hq * rows));
    uint32_t state = 1;
    for (auto* x : {&k, &v, &q, &grad_o})
      for (T& value : *x) {
        state = state * 1664525u + 1013904223u;
        value = T(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
      }
  }

  void forward() {
    run([&](Stream& stream, Arena& scratch) {
      attention_forward(stream, scratch,
                        {.o = query(o),
                         .lse = tensor_of(lse.data(), {Hq, rows}),
                         .q = query(q),
                         .k = key(k),
                         .v = key(v),
                         .mask = mask(),
                         .scale = scale});
    });
  }
  void backward() {
    run([&](Stream& stream, Arena& scratch) {
      attention_backward(stream, scratch,
                         {.dq = query(dq),
                          .dk = key(dk),
                          .dv = key(dv),
                          .grad_o = query(grad_o),
                          .q = query(q),
                          .k = key(k),
                          .v = key(v),
                          .o = query(o),
                          .lse = tensor_of(lse.data(), {Hq, rows}),
                          .mask = mask(),
                          .scale = scale});
    });
  }

  std::vector<int32_t> cu, cu_kv;
  int64_t Hq, Hkv, D, rows, keys, window = 0;
  bool causal = true;
  float scale = 0.5f;
  std::vector<T> q, k, v, o, grad_o, dq, dk, dv;
  std::vector<float> lse;

 private:
  Tensor query(std::vector<T>& x) { return tensor_of(x.data(), {rows, Hq, D}); }
  Tensor key(std::vector<T>& x) { return tensor_of(x.data(), {keys, Hkv, D}); }
  AttentionMask mask() {
    const auto boundaries = [](std::vector<int32_t>& at) {
      return tensor_of(at.data(), {static_cast<int64_t>(at.size())});
    };
    return {.cu_seqlens = boundaries(cu),
            .cu_seqlens_kv = cu_kv.empty() ? Tensor{} : boundaries(cu_kv),
            .causal = causal,
            .window = window};
  }
  template <class Call>
  void run(Call&& call) {
    StreamSet planning(Device::cpu(), {.planning = true}), streams(Device::cpu());
    Arena scratch("scratch", Device::cpu());
    call(planning.add("compute"), scratch);
    scratch.commit({.poison = true});
    call(streams.add("compute"), scratch);
  }
};

// The bits of the last n rows of (rows, row size).
template <class T>
std::vector<unsigned char> last_rows(const std::vector<T>& x, int64_t rows, int64_t n) {
  const size_t row_bytes = x.size() / static_cast<size_t>(rows) * sizeof(T);
  std::vector<unsigned char> bytes(row_bytes * static_cast<size_t>(n));
  std::memcpy(bytes.data(),
              reinterpret_cast<const unsigned char*>(x.data()) + x.size() * sizeof(T) - bytes.size(),
              bytes.size());
  return bytes;
}

// The last n queries of a document, with all of its keys.
template <class T>
Attention<T> last_queries(const Attention<T>& whole, int64_t n) {
  Attention<T> part({0, static_cast<int32_t>(n)}, whole.Hq, whole.Hkv, whole.D, whole.cu);
  part.k = whole.k, part.v = whole.v, part.window = whole.window;
  const auto begin = (whole.rows - n) * whole.Hq * whole.D;
  part.q.assign(whole.q.begin() + begin, whole.q.end());
  part.grad_o.assign(whole.grad_o.begin() + begin, whole.grad_o.end());
  return part;
}

template <class T>
void check_last_queries(int64_t window) {
  Attention<T> whole({0, 150}, 2, 1, 20);
  whole.window = window;
  whole.forward();
  whole.backward();
  for (const int64_t n : {1, 15, 64, 65, 149}) {
    CAPTURE(n);
    Attention<T> part = last_queries(whole, n);
    part.forward();
    part.backward();
    CHECK(last_rows(part.o, n, n) == last_rows(whole.o, whole.rows, n));
    CHECK(last_rows(part.dq, n, n) == last_rows(whole.dq, whole.rows, n));
    for (int64_t h = 0; h < whole.Hq; ++h)
      for (int64_t i = 0; i < n; ++i) {
        const size_t at = static_cast<size_t>(h * n + i),
                     in_whole = static_cast<size_t>((h + 1) * whole.rows - n + i);
        CHECK(part.lse[at] == whole.lse[in_whole]);
      }
  }
}

template <class T>
bool all_zero(const std::vector<T>& x, int64_t begin, int64_t end) {
  return std::all_of(x.begin() + begin, x.begin() + end,
                     [](const T& value) { return static_cast<float>(value) == 0; });
}

}  // namespace

TEST_CASE("attention matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("attention")) {
    CAPTURE(label(c));
    std::string file = "attention_";
    for (const auto& [part, kind] :
         {std::pair{"capped", "capped_"}, {" 72 ", "72_"}, {" 80 ", "80_"}, {" 96 ", "96_"}})
      if (c.shape.find(part) != std::string::npos) file += kind;
    CHECK(test::golden_error(c, str(file, c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("a query has the same bits in any block of queries") {
  for (const int64_t window : {0, 70}) {
    CAPTURE(window);
    check_last_queries<float>(window);
    check_last_queries<bf16>(window);
    check_last_queries<f16>(window);
  }
}

TEST_CASE("a query that attends to no key gives o = 0, lse = -inf and no gradient") {
  Attention<float> a({0, 3, 5}, 1, 1, 4, {0, 1, 3});  // the first two queries precede the only key
  a.forward();
  a.backward();
  CHECK(all_zero(a.o, 0, 2 * 4));
  CHECK(all_zero(a.dq, 0, 2 * 4));
  CHECK(a.lse[0] == -kInfinity);
  CHECK(a.lse[1] == -kInfinity);
  for (int d = 0; d < 4; ++d) {  // the third query attends to one key: o = v, dv = do
    CHECK(a.o[8 + d] == a.v[d]);
    CHECK(a.dv[d] == a.grad_o[8 + d]);
  }
}

TEST_CASE("attention writes zero gradients for keys that no query attends to") {
  Attention<bf16> a({0, 0, 2}, 1, 1, 4, {0, 3, 8});
  a.window = 2;  // the queries have positions 3 and 4 and attend to keys 2, 3 and 4
  for (auto* x : {&a.dk, &a.dv}) std::fill(x->begin(), x->end(), bf16(1));
  a.forward();
  a.backward();
  CHECK(all_zero(a.dk, 0, 5 * 4));
  CHECK(all_zero(a.dv, 0, 5 * 4));
  CHECK(!all_zero(a.dv, 5 * 4, 6 * 4));
}

TEST_CASE("a NaN does not spread to other documents in attention") {
  Attention<bf16> clean({0, 3, 70, 73}, 1, 1, 6), dirty = clean;
  for (auto* x : {&dirty.q, &dirty.k, &dirty.v, &dirty.grad_o})
    std::fill(x->begin() + 3 * 6, x->begin() + 70 * 6, bf16(NAN));
  for (auto* a : {&clean, &dirty}) {
    a->forward();
    a->backward();
  }
  CHECK(std::isnan(static_cast<float>(dirty.o[3 * 6])));
  for (auto x : {&Attention<bf16>::o, &Attention<bf16>::dq, &Attention<bf16>::dk, &Attention<bf16>::dv}) {
    CHECK(last_rows(dirty.*x, 73, 3) == last_rows(clean.*x, 73, 3));
    CHECK(std::memcmp((dirty.*x).data(), (clean.*x).data(), 3 * 6 * sizeof(bf16)) == 0);
  }
}

TEST_CASE("attention does not overflow for scores whose exp does") {
  Attention<float> a({0, 100}, 1, 1, 2);
  a.scale = 1000;
  a.forward();
  for (const float value : a.o) CHECK(std::abs(value) <= 1.0f);
  for (const float value : a.lse) CHECK(std::isfinite(value));
}

TEST_CASE("attention reports a wrong boundary with its value") {
  const auto error = [](std::vector<int32_t> cu, int64_t rows) {
    Attention<float> a({0, static_cast<int32_t>(rows)}, 1, 1, 2);
    a.cu = std::move(cu);
    return test::error_of([&] { a.forward(); });
  };
  CHECK(error({0, 3, 2, 4}, 4) == "attention_forward: cu_seqlens decreases from 3 to 2 at index 2");
  CHECK(error({1, 4}, 4) == "attention_forward: cu_seqlens starts with 1, must start with 0");
  CHECK(error({0, 3}, 4) == "attention_forward: cu_seqlens ends with 3, must end with 4, the number of rows");
}

TEST_CASE("attention reports an argument that does not fit") {
  const auto error = [](auto&& change) {
    Attention<float> a({0, 4}, 2, 2, 2);
    change(a);
    return test::error_of([&] { a.backward(); });
  };
  CHECK(error([](auto& a) { a.window = -1; }) ==
        "attention_backward: window is -1, must be 0 (none), or positive with causal attention");
  CHECK(error([](auto& a) { a.window = 1, a.causal = false; }) ==
        "attention_backward: window is 1, must be 0 (none), or positive with causal attention");
  CHECK(error([](auto& a) { a.Hq = 3; }) ==
        "attention_backward: 3 query heads, must be a multiple of the 2 key heads");
  CHECK(error([](auto& a) { a.rows = 3; }) ==
        "attention_backward: 4 keys and 3 queries: numbers that differ need cu_seqlens_kv");
}

TEST_CASE("attention refuses heads outside a packed tensor") {
  float qkv[2 * 4 * 2] = {}, o[2 * 2 * 2], lse[2 * 2];
  int32_t cu[2] = {0, 2};
  StreamSet streams(Device::cpu());
  Arena scratch("scratch", Device::cpu());
  const Tensor packed = tensor_of(qkv, {2, 4, 2});
  CHECK(test::error_of([&] {
          attention_forward(streams.add("compute"), scratch,
                            {.o = tensor_of(o, {2, 2, 2}),
                             .lse = tensor_of(lse, {2, 2}),
                             .q = {packed, 0, 2},
                             .k = {packed, 2, 1},
                             .v = {packed, 4, 1},
                             .mask = {.cu_seqlens = tensor_of(cu, {2})},
                             .scale = 1});
        }) == "attention_forward: v is heads [4, 5) of (2, 4, 2)");
}
