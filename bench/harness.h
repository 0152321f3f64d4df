#pragma once
// Checks and times a case. First the small test cases of the op are compared with their reference; an op that
// fails is not timed. Timed calls cycle through enough copies of the arguments to defeat the caches, and are
// interleaved with samples of the ceiling that bounds the case.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/case.h"
#include "bench/ceiling.h"
#include "bench/measure.h"

namespace flatshard::bench {

// The accuracy of an op in one dtype, from the test case whose error is the largest fraction of its
// tolerance.
struct Accuracy {
  double error = 0, tolerance = 0;
  std::string worst;  // the label of that case; empty if no case checks the op
  bool passed() const { return !worst.empty() && error <= tolerance; }
};

struct Result {
  std::string op, shape;
  DType dtype = DType::f32;
  std::string skipped;  // the reason if the case was not run
  Accuracy accuracy;

  // The following members are valid if was_timed().
  Spread seconds;  // seconds per call
  double bytes = 0, flops = 0;
  int samples = 0;
  int64_t calls_per_sample = 0;
  int copies = 0;
  bool out_of_time = false;   // the time limit ended the sampling
  bool disturbed = false;     // other programs used the processors during the samples
  bool matrix_bound = false;  // bound by the matrix peak instead of the copy bandwidth
  double copy_rate = 0;       // bytes/s, the copy ceiling during the case
  double matrix_rate = 0;     // operations/s; 0 if not measured

  bool was_timed() const { return skipped.empty() && accuracy.passed(); }
  double byte_rate() const { return bytes / seconds.median; }
  double flop_rate() const { return flops / seconds.median; }
  // The least time that the ceilings allow.
  double floor_seconds() const;
};

struct Limits {
  double seconds = 2;                       // time per case
  int64_t cache_bytes = 0;                  // size of the last-level cache
  int64_t memory_bytes = int64_t{4} << 30;  // limit for all copies of the arguments
};

// The number of copies of `bytes` bytes of arguments that exceed three times the cache: at least two unless
// memory is short, at most kMaxCopies.
inline constexpr int kMaxCopies = 1024;
int copies_to_rotate(int64_t bytes, const Limits& limits);

// The cases whose label contains all words. Throws Error if there are none.
std::vector<Case> select_cases(std::vector<Case> cases, const std::vector<std::string>& words);

class Harness {
 public:
  // `tests` are the test cases of all ops.
  Harness(Device device, std::vector<Case> tests, Ceilings& ceilings, Limits limits)
      : device_(device), tests_(std::move(tests)), ceilings_(ceilings), limits_(limits) {}

  Result measure(const Case& c);
  // The accuracy of the op of `c` in its dtype, computed once.
  const Accuracy& accuracy(const Case& c);

 private:
  void time(const Case& c, Result& result);

  Device device_;
  std::vector<Case> tests_;
  Ceilings& ceilings_;
  Limits limits_;
  std::map<std::pair<std::string, DType>, Accuracy> checked_;
};

}  // namespace flatshard::bench
