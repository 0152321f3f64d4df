#pragma once
// The peak rates of this machine, measured in this process on its threads: bytes copied per second (read plus
// written), and floating-point operations per second in matrix products. Since rates drift, each sample of a
// case is compared with samples of the ceiling taken right before and after it.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace flatshard::bench {

class Ceiling {
 public:
  // One implementation of the work. The fastest one is used.
  struct Way {
    std::string name;
    double work;                      // bytes or operations in one run
    std::function<double()> seconds;  // runs once and returns the time
  };

  // Measures all ways alternately, several times.
  explicit Ceiling(std::vector<Way> ways);

  // The current rate of the fastest way, from one run or from as many as take least_seconds.
  double sample(double least_seconds = 0);
  double measure();                        // the maximum of several samples
  double first() const { return first_; }  // the initial rate
  const std::string& how() const { return way_.name; }

 private:
  Way way_;
  double first_ = 0;
};

struct Ceilings {
  Ceiling copy;
  // Only on a CPU. Reads alone can be slower than a copy, whose reads and writes overlap; this ceiling bounds
  // an op that reads much more than it writes.
  std::optional<Ceiling> read{};
  std::optional<Ceiling> f32{}, bf16{};  // matrix products; empty if they cannot be measured
  std::string no_matrix{};               // the reason why they are empty

  // The ceiling of matrix products in this dtype; null if empty. f16 is computed in f32, and uses its
  // ceiling.
  Ceiling* matrix(DType dtype);
};

struct CeilingSizes {
  int64_t copy_floats = 0;                               // 0: 256 MiB on the CPU, 1 GiB on a GPU
  int64_t largest_square = 8192;                         // largest side of the matrix products
  std::vector<DType> products{DType::f32, DType::bf16};  // dtypes to measure
};
// Sizes for tests of the program: too small for meaningful rates.
inline const CeilingSizes kSmallCeilings{.copy_floats = int64_t{1} << 16, .largest_square = 256};

Ceilings measure_ceilings(Device device, const CeilingSizes& sizes = {});

}  // namespace flatshard::bench
