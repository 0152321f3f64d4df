#pragma once
// What this machine can do at best, measured in this process on these threads: bytes copied per second (read
// plus written) and floating-point operations per second in matrix products. Machines are noisy and drift, so
// a case is compared with samples of its ceiling taken right before and after each of its own.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace flatshard::bench {

class Ceiling {
 public:
  // One way to do the work; the fastest counts.
  struct Way {
    std::string name;
    double work;                      // bytes or operations of one run
    std::function<double()> seconds;  // does it, and says how long that took
  };

  // Tries all ways in turn, several times.
  explicit Ceiling(std::vector<Way> ways);

  // The rate now, of the fastest way: of one run, or of as many as keep the host for least_seconds.
  double sample(double least_seconds = 0);
  double measure();                        // the best of several samples
  double first() const { return first_; }  // the best rate at the start
  const std::string& how() const { return way_.name; }

 private:
  Way way_;
  double first_ = 0;
};

struct Ceilings {
  Ceiling copy;
  std::optional<Ceiling> f32{}, bf16{};  // matrix products; absent where the device has none
  std::string no_matrix{};               // why they are absent

  // The ceiling of matrix products of this dtype; f16 is computed in f32 and compared with it. Null where
  // absent.
  Ceiling* matrix(DType dtype);
};

struct CeilingSizes {
  int64_t copy_floats = 0;                               // 0: 256 MiB on the CPU, 1 GiB on a GPU
  int64_t largest_square = 8192;                         // of the matrix products
  std::vector<DType> products{DType::f32, DType::bf16};  // those to measure
};
// These only show that the measurement works, not what the machine can do.
inline const CeilingSizes kSmallCeilings{.copy_floats = int64_t{1} << 16, .largest_square = 256};

Ceilings measure_ceilings(Device device, const CeilingSizes& sizes = {});

}  // namespace flatshard::bench
