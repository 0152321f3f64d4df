#pragma once
// parallel_blocks for an op that writes an output it does not read. An ordinary store first fetches the line
// that it overwrites, a third of the memory traffic of y = f(x). An output larger than any cache is therefore
// written past the caches; a smaller one stays in them for its reader. The choice is made once per call, from
// the output's size, and both ways write the same bits:
//   parallel_write(a.y.bytes(), rows, kRowBlock, [&](int64_t begin, int64_t end, auto out) {
//     ... out.store(y + i, value, lanes);
//   });
// Where the output is in place of an input its lines are in the caches already: pass write_only_bytes(y, x).

#include "kernels/simd.h"
#include "runtime/parallel.h"
#include "runtime/tensor.h"

namespace flatshard {

// Beyond what a share of a last-level cache keeps until the next op reads it.
inline constexpr int64_t kPastCachesBytes = int64_t{32} << 20;

// Tests: while one lives, outputs larger than `bytes` are written past the caches. Results must not change.
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

// Elements in a block of work that is large beside the cost of handing it to a thread.
inline constexpr int64_t kBlockElements = 32768;
inline int64_t rows_per_block(int64_t C) { return C < kBlockElements ? kBlockElements / (C < 1 ? 1 : C) : 1; }

// What to pass for an output that may lie in the place of `input`.
inline int64_t write_only_bytes(const Tensor& output, const Tensor& input) {
  return output.data == input.data ? 0 : output.bytes();
}

struct CachedOutput {
  template <class T, class Lanes>
  void store(T* p, simd::Floats v, Lanes lanes) const {
    simd::store(p, v, lanes);
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
  void finish() const { simd::store_fence(); }
};

// work(begin, end, out) for blocks of [0, n); `written` is the size of the op's output in bytes.
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

}  // namespace flatshard
