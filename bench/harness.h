#pragma once
// Checks and times one case. The op's small test cases are compared with their reference first: an op that is
// wrong gets no time. Timed calls take turns on enough copies of the arguments that no cache holds the next
// one, and stand between samples of the ceiling that bounds the case.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/case.h"
#include "bench/ceiling.h"
#include "bench/measure.h"

namespace flatshard::bench {

// The error of an op in one dtype, from the test case that uses most of its tolerance.
struct Accuracy {
  double error = 0, tolerance = 0;
  std::string worst;  // that case's label; empty when there is none to check
  bool passed() const { return !worst.empty() && error <= tolerance; }
};

struct Result {
  std::string op, shape;
  DType dtype = DType::f32;
  std::string skipped;  // why the case was not run; empty where it was
  Accuracy accuracy;

  // The rest stands only where was_timed().
  Spread seconds;  // of one call
  double bytes = 0, flops = 0;
  int samples = 0;
  int64_t calls_per_sample = 0;
  int copies = 0;
  bool out_of_time = false;   // the time limit came before the samples were enough
  bool disturbed = false;     // other programs had the processors: the samples are not quiet ones
  bool matrix_bound = false;  // which of the two ceilings bounds the case
  double copy_rate = 0;       // bytes/s, the ceiling around the time of the case
  double matrix_rate = 0;     // operations/s; 0 where there is none to compare with

  bool was_timed() const { return skipped.empty() && accuracy.passed(); }
  double byte_rate() const { return bytes / seconds.median; }
  double flop_rate() const { return flops / seconds.median; }
  // The time below which the ceilings allow nothing.
  double floor_seconds() const;
};

struct Limits {
  double seconds = 2;                       // of timing, for a case
  int64_t cache_bytes = 0;                  // of the last level
  int64_t memory_bytes = int64_t{4} << 30;  // for all copies of a case's arguments
};

// Copies of `bytes` bytes of arguments that exceed three caches, at least two; fewer where memory ends, at
// most kMaxCopies.
inline constexpr int kMaxCopies = 1024;
int copies_to_rotate(int64_t bytes, const Limits& limits);

// The cases whose label holds every one of the words; an Error when there are none.
std::vector<Case> select_cases(std::vector<Case> cases, const std::vector<std::string>& words);

class Harness {
 public:
  // `tests` are the small cases of all ops.
  Harness(Device device, std::vector<Case> tests, Ceilings& ceilings, Limits limits)
      : device_(device), tests_(std::move(tests)), ceilings_(ceilings), limits_(limits) {}

  Result measure(const Case& c);
  // Of c's op in c's dtype; each is checked once.
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
