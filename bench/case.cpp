#include "bench/case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/check.h"
#include "runtime/parallel.h"

namespace flatshard::bench {
namespace {

// Cases compute with values of order one. Smaller results come from cancellation and are compared to this
// magnitude.
constexpr double kSmall = 0.05;
constexpr int64_t kFillBlock = 1 << 16;  // number of elements per task

bool is_written(const Arg& arg) { return arg.role == Role::output || arg.role == Role::updated; }

// splitmix64, for test data only; the random numbers of the trainer are in runtime/rng.h.
double unit_random(uint64_t seed, uint64_t i) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

template <class F>
void visit_any(DType dtype, F&& f) {
  if (dtype == DType::i32) return f.template operator()<int32_t>();
  if (dtype == DType::u8) return f.template operator()<uint8_t>();
  visit_float(dtype, f);
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(value);
  return T(static_cast<float>(value));
}

void fill_argument(const Arg& arg, const Tensor& host, uint64_t seed) {
  if (host.empty()) return;
  if (arg.role == Role::output || arg.role == Role::saved) {  // poison: NaN in all float dtypes
    std::memset(host.data, 0xff, static_cast<size_t>(host.bytes()));
    return;
  }
  const uint64_t stream = seed * 1000003 + std::hash<std::string>{}(arg.name);
  visit_any(arg.dtype, [&]<class T>() {
    T* data = host.as<T>();
    parallel_blocks(host.size(), kFillBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double unit = unit_random(stream, static_cast<uint64_t>(i));
        data[i] = from_double<T>(arg.fill ? arg.fill(i, unit) : 3.0 * unit - 1.5);
      }
    });
  });
}

void copy_and_wait(Stream& stream, const Tensor& dst, const Tensor& src) {
  copy(stream, dst, src);
  stream.sync();
}

struct HostCopy {
  explicit HostCopy(const Tensor& like) : memory(Device::cpu(), like.bytes()), tensor(like) {
    tensor.data = memory.data();
    tensor.device = Device::cpu();
  }
  Memory memory;
  Tensor tensor;
};

// sum(dy * y) over the forward outputs y with a gradient "dy".
double loss(const Case& c, Values& values, const Values& before) {
  c.reference(values);
  double total = 0;
  for (const Arg& arg : c.args) {
    if (is_written(arg) || arg.name[0] != 'd') continue;
    const auto y = values.find(arg.name.substr(1));
    if (y == values.end()) continue;
    const std::vector<double>& dy = before.at(arg.name);
    for (size_t i = 0; i < dy.size(); ++i) total += dy[i] * y->second[i];
  }
  return total;
}

// Gives all values that the reference may have written their values before it ran.
void restore(const Case& c, Values& values, const Values& before) {
  for (const Arg& arg : c.args)
    if (arg.role != Role::input && arg.role != Role::constant) values.at(arg.name) = before.at(arg.name);
  for (auto& [name, of_reference] : values)
    if (!before.contains(name)) of_reference.clear();
}

// d loss / d x for each element of x, by fourth-order central differences.
std::vector<double> numeric_gradient(const Case& c, const std::string& x, const Values& before) {
  Values values = before;
  std::vector<double>& moving = values.at(x);
  std::vector<double> gradient(moving.size());
  for (size_t i = 0; i < moving.size(); ++i) {
    const double middle = moving[i], h = 1e-3;
    const auto at = [&](double offset) {
      moving[i] = middle + offset;
      const double result = loss(c, values, before);
      restore(c, values, before);
      return result;
    };
    gradient[i] = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    moving[i] = middle;
  }
  return gradient;
}

}  // namespace

std::string label(const Case& c) { return str(c.op, ' ', c.shape, ' ', c.dtype); }

std::vector<Case> golden_cases(std::string_view stem) {
  std::vector<Case> cases = all_cases(Scale::golden);
  std::erase_if(cases, [&](const Case& c) { return c.stem != stem; });
  check(!cases.empty(), stem, " has no golden cases");
  return cases;
}

Tensor Tensors::operator[](std::string_view name) const {
  for (const auto& [n, tensor] : entries_)
    if (n == name) return tensor;
  fail(str("the case has no argument ", name));
}

bool Tensors::has(std::string_view name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first == name; });
}

Setup::Setup(const Case& c, SetupOptions options)
    : case_(c),
      streams_(options.device, {.order = options.order}),
      stream_(streams_.add("compute")),
      arguments_("arguments", options.device),
      scratch_("scratch", options.device),
      initial_("initial values", options.device) {
  check(options.copies >= 1, "SetupOptions::copies is ", options.copies, ", must be at least 1");
  StreamSet planning(options.device, {.planning = true});
  Stream& dry = planning.add("compute");
  const auto build = [&] {
    const auto arguments_in = [&](Arena& arena) {
      Tensors all;
      for (const Arg& arg : c.args) all.add(arg.name, arena.alloc(arg.dtype, arg.shape));
      return all;
    };
    copies_.clear();
    for (int copy = 0; copy < options.copies; ++copy) copies_.push_back(arguments_in(arguments_));
    initials_ = arguments_in(initial_);
  };
  build();
  c.run(dry, scratch_, tensors());
  planned_scratch_ = scratch_.peak();
  if (c.prepare) c.prepare(dry, scratch_, tensors());
  const bool guard = options.order == StreamOrder::in_order && !options.device.is_cuda();
  arguments_.commit({.misalign = options.misalign, .guard = guard});
  scratch_.commit({.misalign = options.misalign, .poison = true, .guard = guard});
  initial_.commit();
  build();

  for (const Arg& arg : c.args) {
    HostCopy host(tensors()[arg.name]);
    fill_argument(arg, host.tensor, options.seed);
    copy_and_wait(stream_, tensors()[arg.name], host.tensor);
  }
  if (c.prepare) c.prepare(stream_, scratch_, tensors());
  for (const Arg& arg : c.args) copy(stream_, initials_[arg.name], tensors()[arg.name]);
  reset();
}

void plan(const Case& c, Device device) {
  Arena arguments("arguments", device), scratch("scratch", device);
  StreamSet planning(device, {.planning = true});
  Tensors all;
  for (const Arg& arg : c.args) all.add(arg.name, arguments.alloc(arg.dtype, arg.shape));
  c.run(planning.add("compute"), scratch, all);
}

void Setup::run() {
  launch(0);
  stream_.sync();
}

void Setup::launch(int copy) { case_.run(stream_, scratch_, copies_.at(static_cast<size_t>(copy))); }

void Setup::reset() {
  for (const Tensors& set : copies_)
    for (const Arg& arg : case_.args) copy(stream_, set[arg.name], initials_[arg.name]);
  stream_.sync();
}

std::vector<unsigned char> Setup::bytes(std::string_view name) const {
  HostCopy host(tensors()[name]);
  copy_and_wait(stream_, host.tensor, tensors()[name]);
  const auto* begin = static_cast<const unsigned char*>(host.tensor.data);
  return {begin, begin + host.tensor.bytes()};
}

std::vector<double> Setup::values(std::string_view name) const {
  HostCopy host(tensors()[name]);
  copy_and_wait(stream_, host.tensor, tensors()[name]);
  return to_doubles(host.tensor);
}

Values Setup::all_values() const {
  Values all;
  for (const Arg& arg : case_.args) all[arg.name] = values(arg.name);
  return all;
}

void Setup::assign(std::string_view name, const std::vector<double>& values) {
  HostCopy host(tensors()[name]);
  from_doubles(host.tensor, values);
  copy_and_wait(stream_, tensors()[name], host.tensor);
  copy_and_wait(stream_, initials_[name], host.tensor);
}

std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  visit_any(tensor.dtype, [&]<class T>() {
    const T* data = tensor.as<T>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(data[i]);
  });
  return values;
}

void from_doubles(const Tensor& tensor, const std::vector<double>& values) {
  check(static_cast<size_t>(tensor.size()) == values.size(), values.size(), " values do not fit a tensor ",
        tensor.shape);
  visit_any(tensor.dtype, [&]<class T>() {
    T* data = tensor.as<T>();
    for (size_t i = 0; i < values.size(); ++i) data[i] = from_double<T>(values[i]);
  });
}

double max_error(const std::vector<double>& got, const std::vector<double>& expected) {
  check(got.size() == expected.size(), "cannot compare ", got.size(), " values with ", expected.size());
  double squares = 0;
  for (const double e : expected) squares += std::isfinite(e) ? e * e : 0;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(expected.size(), 1)));
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // equal infinities, too
    const double error = std::abs(got[i] - expected[i]) / std::max({std::abs(expected[i]), rms, kSmall});
    worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

Values expected_outputs(const Case& c, const Values& before) {
  Values expected, after = before;
  c.reference(after);
  for (const Arg& arg : c.args) {
    if (!is_written(arg)) continue;
    if (!c.gradients || arg.name[0] != 'd') {
      expected[arg.name] = after.at(arg.name);
      continue;
    }
    std::vector<double> gradient = numeric_gradient(c, arg.name.substr(1), before);
    if (arg.role == Role::updated)
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += before.at(arg.name)[i];
    expected[arg.name] = std::move(gradient);
  }
  return expected;
}

double max_error(const Case& c, SetupOptions options) {
  Setup setup(c, options);
  const Values before = setup.all_values();
  setup.run();
  double worst = 0;
  for (const auto& [name, expected] : expected_outputs(c, before))
    worst = std::max(worst, max_error(setup.values(name), expected));
  return worst;
}

double tolerance(const Case& c) {
  // f32: rounding of sums of about a hundred terms. 16 bits: three units in the last place of the stored
  // result (bf16 2^-8, f16 2^-11), for results and operands that the op rounds.
  const double unit = c.dtype == DType::f32 ? 2e-5 : c.dtype == DType::bf16 ? 3 * 0x1p-8 : 3 * 0x1p-11;
  return unit * c.tolerance_factor;
}

}  // namespace flatshard::bench
