#pragma once
// A case is one call of one op on given shapes: its tensors by name, the call, its cost, and its formula
// written naively in double. One case serves the tests (bits, values, gradients, scratch) and the benchmark
// (time).
//
// Names carry the mathematics. In a backward case the op's output "dx" is checked against the numeric
// derivative, with respect to the input "x", of sum(dy * y) over every forward output "y" that has a "dy"
// among the arguments. Its outputs that are not named d... (the loss beside its gradient) are values of the
// reference, as in a forward case.

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
  constant,  // not differentiable: tokens, positions, mask boundaries, per-token weights
  saved,     // what forward keeps for backward; made by Case::prepare
  output,    // written by the op; poisoned before
  updated,   // read and written by the op: an accumulated gradient, an optimizer state
};

// The value of element i; `unit` is a random number in [0, 1). Without a fill, values lie in [-1.5, 1.5).
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
  Tensor operator[](std::string_view name) const;  // an Error when there is none
  bool has(std::string_view name) const;
  void add(std::string name, Tensor tensor) { entries_.emplace_back(std::move(name), tensor); }

 private:
  std::vector<std::pair<std::string, Tensor>> entries_;
};

// Every element of every argument in double, by name; the reference adds the forward outputs.
using Values = std::map<std::string, std::vector<double>>;

struct Case {
  std::string op;     // the function's name: "rmsnorm_backward"
  std::string shape;  // as it is printed: "8192 x 1024"
  DType dtype;
  std::vector<Arg> args;
  std::function<void(Stream&, Arena& scratch, const Tensors&)> run;
  // Backward cases: runs the forward op to fill the saved arguments. Null where there are none.
  std::function<void(Stream&, Arena& scratch, const Tensors&)> prepare = nullptr;
  std::function<double(const Tensors&)> min_bytes = nullptr;
  std::function<double(const Tensors&)> flops = nullptr;
  // The forward formula: reads inputs, constants and updated values by name, writes outputs by name.
  std::function<void(Values&)> reference = nullptr;
  bool gradients = false;  // outputs named d... are derivatives of the reference, not its values
  double tolerance_factor =
      1.0;                    // times the tolerance of the dtype; a comment at the case says why it is not 1
  bool matrix_bound = false;  // the benchmark compares with the matrix peak, not with the copy bandwidth
  bool needs_gpu = false;     // too large to be timed on a CPU
  // Set from the CMake list by all_cases.
  std::string stem{};
  bool has_cuda_twin = false;
};

std::string label(const Case& c);  // "rmsnorm_backward 8192 x 1024 bf16"

// test: tiny odd shapes in every float dtype. golden: the shapes of tests/golden/X_f32 and X_bf16. bench:
// large. vm: as large as the PTX machine can count in a second and with the costs of a large one; ops without
// a CUDA twin need none.
enum class Scale { test, golden, bench, vm };

// forward(dtype, size) and backward(dtype, size) for every size, in f32 and bf16, and for tests in f16 too.
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

// All cases of all ops, in the order of the CMake list; each op declares its own as X_cases(scale).
std::vector<Case> all_cases(Scale scale);
// The golden cases of the op with this stem.
std::vector<Case> golden_cases(std::string_view stem);

// A case set up on a device: arenas planned and committed, arguments filled, saved values prepared.
struct SetupOptions {
  Device device = Device::cpu();
  StreamOrder order = StreamOrder::in_order;
  int64_t misalign = 0;  // shifts every argument and all scratch by this many bytes
  uint64_t seed = 1;
  int copies =
      1;  // sets of arguments with equal values: a benchmark takes turns, so that caches do not help it
};

class Setup {
 public:
  explicit Setup(const Case& c, SetupOptions options = {});

  void run();             // the op once, on arguments as they are, and waits for it
  void launch(int copy);  // the op once on a set of arguments, without waiting
  void reset();           // all arguments as they were before the first run
  const Tensors& tensors() const { return copies_[0]; }
  Stream& stream() { return stream_; }
  Arena& scratch() { return scratch_; }
  int64_t planned_scratch() const { return planned_scratch_; }

  // An argument's elements on the host, and all of them.
  std::vector<double> values(std::string_view name) const;
  Values all_values() const;
  std::vector<unsigned char> bytes(std::string_view name) const;
  // Replaces an argument's elements; later resets keep them.
  void assign(std::string_view name, const std::vector<double>& values);

 private:
  const Case& case_;
  StreamGroup streams_;
  Stream& stream_;
  Arena arguments_, scratch_, initial_;
  std::vector<Tensors> copies_;
  Tensors initials_;
  int64_t planned_scratch_ = 0;
};

// Elements of a host tensor of any dtype as doubles, and back (rounded to the dtype).
std::vector<double> to_doubles(const Tensor& tensor);
void from_doubles(const Tensor& tensor, const std::vector<double>& values);

// The largest error of an op's outputs against its reference: |out - ref| / max(|ref|, rms(ref), 0.05) over
// all elements. Infinite where an output is NaN and the reference is not.
double max_error(const Case& c, SetupOptions options = {});
double max_error(const std::vector<double>& got, const std::vector<double>& expected);

// What the outputs of a case must be, by name: the reference's values, or its numeric derivatives.
Values expected_outputs(const Case& c, const Values& before);

// The error that a dtype's rounding may cause in one op whose operands and results are of order one.
double tolerance(const Case& c);

}  // namespace flatshard::bench
