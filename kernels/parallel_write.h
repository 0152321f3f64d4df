#pragma once
// parallel_blocks for ops with a write-only output. An ordinary store first fetches the cache line that it
// overwrites, a third of the memory traffic of y = f(x). An output larger than the caches is therefore
// written with non-temporal stores; a smaller one stays cached for its reader. The choice depends only on the
// size of the output, and both kinds of stores write the same bits:
//   parallel_write(a.y.bytes(), rows, kRowBlock, [&](int64_t begin, int64_t end, auto out) {
//     ... out.store(y + i, value, lanes);
//   });
// An in-place output is cached already: pass write_only_bytes(y, x).

#include "kernels/simd.h"
#include "runtime/parallel.h"
#include "runtime/tensor.h"

namespace flatshard {

// An output larger than this is expected to leave the last-level cache before the next op reads it.
inline constexpr int64_t kPastCachesBytes = int64_t{32} << 20;

// During its lifetime, outputs larger than `bytes` are written with non-temporal stores; for tests.
class ScopedPastCachesBound {
 public:
  explicit ScopedPastCachesBound(int64_t bytes) : before_(bound_) { bound_ = bytes; }
  ~ScopedPastCachesBound() { bound_ = before_; }
  ScopedPastCachesBound(const ScopedPastCachesBound&) = delete;
  ScopedPastCachesBound& operator=(const ScopedPastCachesBound&) = delete;
  static int64_t bound() { return bound_; }

 private:
  static inline int64_t bound_ = kPastCachesBytes;
  int64_t before_;
};

// Elements per block of work, enough to make the cost of scheduling negligible.
inline constexpr int64_t kBlockElements = 32768;
inline int64_t rows_per_block(int64_t C) { return C < kBlockElements ? kBlockElements / (C < 1 ? 1 : C) : 1; }

// The `written` argument for an output that may be in place of `input`.
inline int64_t write_only_bytes(const Tensor& output, const Tensor& input) {
  return output.data == input.data ? 0 : output.bytes();
}

struct CachedOutput {
  template <class T, class Lanes>
  void store(T* p, simd::Floats v, Lanes lanes) const {
    simd::store(p, v, lanes);
  }
  template <class T, class Vector>
  void store_bits(T* p, const Vector& v) const {
    std::memcpy(static_cast<void*>(p), &v, sizeof v);
  }
  void finish() const {}
};

struct PastCachesOutput {
  template <class T, class Lanes>
  void store(T* p, simd::Floats v, Lanes lanes) const {
    if constexpr (std::is_same_v<Lanes, simd::Full>)
      simd::store_past_caches(p, v);
    else
      simd::store(p, v, lanes);
  }
  template <class T, class Vector>
  void store_bits(T* p, const Vector& v) const {
    simd::store_bits_past_caches(p, v);
  }
  void finish() const { simd::store_fence(); }
};

// Calls work(begin, end, out) for blocks of [0, n). `written` is the size of the output in bytes.
template <class Work>
void parallel_write(int64_t written, int64_t n, int64_t block, Work&& work) {
  const auto run = [&](auto out) {
    parallel_blocks(n, block, [&](int64_t begin, int64_t end) {
      work(begin, end, out);
      out.finish();
    });
  };
  written > ScopedPastCachesBound::bound() ? run(PastCachesOutput{}) : run(CachedOutput{});
}

// y[i] = value(i, lanes).
template <class T, class Value>
void write_elements(const Tensor& y, int64_t written, Value&& value) {
  T* to = y.as<T>();
  parallel_write(written, y.size(), kBlockElements, [&](int64_t begin, int64_t end, auto out) {
    simd::for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      out.store(to + begin + i, value(begin + i, lanes), lanes);
    });
  });
}

}  // namespace flatshard
