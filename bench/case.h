#pragma once
// A case is one call of an op on given shapes: its named tensors, the call, its cost, and a reference, the
// formula in double. Tests use cases for bits, values, gradients and scratch, the benchmark for times.
//
// Names define the comparisons. In a backward case, output "dx" is compared with the numeric derivative,
// with respect to input "x", of sum(dy * y) over all forward outputs "y" with a "dy" among the arguments.
// Outputs that are not named d..., such as a loss, are compared with the values of the reference, as in a
// forward case.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard::bench {

enum class Role {
  input,     // random values; differentiable
  constant,  // values that are not differentiable: tokens, positions, mask boundaries, per-token weights
  saved,     // saved by the forward op for the backward op; computed by Case::prepare
  output,    // written by the op; poisoned before the call
  updated,   // read and written by the op: accumulated gradients, optimizer state
};

// The value of element i, given a random number `unit` in [0, 1). The default is uniform in [-1.5, 1.5).
using Fill = std::function<double(int64_t i, double unit)>;

struct Arg {
  std::string name;
  DType dtype;
  Shape shape;
  Role role;
  Fill fill = nullptr;
};

// The tensors of one case by name.
class Tensors {
 public:
  Tensor operator[](std::string_view name) const;  // throws Error if there is none
  bool has(std::string_view name) const;
  void add(std::string name, Tensor tensor) { entries_.emplace_back(std::move(name), tensor); }

 private:
  std::vector<std::pair<std::string, Tensor>> entries_;
};

// The elements of all arguments in double, by name. The reference adds the forward outputs.
using Values = std::map<std::string, std::vector<double>>;

struct Case {
  std::string op;     // the function's name: "rmsnorm_backward"
  std::string shape;  // printed form, such as "8192 x 1024"
  DType dtype;
  std::vector<Arg> args;
  std::function<void(Stream&, Arena& scratch, const Tensors&)> run;
  // Runs the forward op that fills the saved arguments of a backward case. Null if there are none.
  std::function<void(Stream&, Arena& scratch, const Tensors&)> prepare = nullptr;
  std::function<double(const Tensors&)> min_bytes = nullptr;
  std::function<double(const Tensors&)> flops = nullptr;
  // The forward formula: reads inputs, constants and updated values by name, writes outputs by name.
  std::function<void(Values&)> reference = nullptr;
  bool gradients = false;  // outputs d... are compared with derivatives of the reference, not with its values
  double tolerance_factor =
      1.0;                    // factor for the tolerance of the dtype; a case with another factor says why
  bool matrix_bound = false;  // bound by the matrix peak instead of the copy bandwidth
  bool needs_gpu = false;     // too large to time on a CPU
  bool is_detail = false;     // one of many similar ones, timed on request (bench --detail)
  // all_cases() sets these from the CMake list.
  std::string stem{};
  bool has_cuda_kernel = false;
};

std::string label(const Case& c);  // a label such as "rmsnorm_backward 8192 x 1024 bf16"

// test: tiny, odd shapes in all float dtypes. golden: the shapes of tests/golden/X_f32 and X_bf16. bench:
// large shapes. vm: shapes that the PTX machine simulates in about a second, with the costs per byte of large
// ones; only for ops with a CUDA kernel.
enum class Scale { test, golden, bench, vm };

// Returns forward(dtype, size) and backward(dtype, size) for each size, in f32 and bf16, and for tests also
// in f16.
template <class Sizes, class Forward, class Backward>
std::vector<Case> both_directions(Scale scale, const Sizes& sizes, Forward&& forward, Backward&& backward) {
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  if (scale == Scale::test) dtypes.push_back(DType::f16);
  std::vector<Case> cases;
  for (const DType dtype : dtypes)
    for (const auto& size : sizes) {
      cases.push_back(forward(dtype, size));
      cases.push_back(backward(dtype, size));
    }
  return cases;
}

// The cases of all ops, in the order of the list in CMakeLists.txt. Each op defines X_cases(scale).
std::vector<Case> all_cases(Scale scale);
// The golden cases of one op.
std::vector<Case> golden_cases(std::string_view stem);

// A case ready to run on a device: arenas are committed, arguments filled, saved arguments computed.
struct SetupOptions {
  Device device = Device::cpu();
  StreamOrder order = StreamOrder::in_order;
  int64_t misalign = 0;  // offset of all arguments and scratch from their alignment, in bytes
  uint64_t seed = 1;
  int copies = 1;  // sets of arguments with equal values, which a benchmark cycles through to defeat caches
};

class Setup {
 public:
  explicit Setup(const Case& c, SetupOptions options = {});  // the case must outlive it
  explicit Setup(Case&& c, SetupOptions options = {}) = delete;

  void run();             // runs the op once on the current arguments and waits
  void launch(int copy);  // enqueues the op once on one set of arguments
  void reset();           // restores all arguments to their initial values
  const Tensors& tensors() const { return copies_[0]; }
  Stream& stream() { return stream_; }
  Arena& scratch() { return scratch_; }
  int64_t planned_scratch() const { return planned_scratch_; }

  // The elements of one argument, or of all arguments, on the host.
  std::vector<double> values(std::string_view name) const;
  Values all_values() const;
  std::vector<unsigned char> bytes(std::string_view name) const;
  // Replaces the initial values of an argument.
  void assign(std::string_view name, const std::vector<double>& values);

 private:
  const Case& case_;
  StreamSet streams_;
  Stream& stream_;
  Arena arguments_, scratch_, initial_;
  std::vector<Tensors> copies_;
  Tensors initials_;
  int64_t planned_scratch_ = 0;
};

// Runs the op on a planning stream and planning arenas: it is checked and planned, and nothing is computed.
void plan(const Case& c, Device device);

// Converts the elements of a host tensor to doubles and back, rounded to its dtype.
std::vector<double> to_doubles(const Tensor& tensor);
void from_doubles(const Tensor& tensor, const std::vector<double>& values);

// The largest error of the outputs of an op against its reference: |out - ref| / max(|ref|, rms(ref), 0.05)
// over all elements. Infinite if an output is NaN and the reference is not.
double max_error(const Case& c, SetupOptions options = {});
double max_error(const std::vector<double>& got, const std::vector<double>& expected);

// The expected outputs of a case by name: values of the reference, or its numeric derivatives.
Values expected_outputs(const Case& c, const Values& before);

// The error that rounding to a dtype may cause in one op with operands and results of order one.
double tolerance(const Case& c);

}  // namespace flatshard::bench
