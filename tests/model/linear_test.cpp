// Linear layers with adapters, whose inputs and gradients have spare columns: the values of those without.
// That u and its gradient are right is tested in adapter_test.cpp.

#include "model/linear.h"

#include "bench/case.h"
#include "runtime/rng.h"
#include "tests/model/gradients.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Values = std::vector<double>;

constexpr int64_t kTokens = 5, kSpare = 32;  // at least all ranks
constexpr double kRounding = 1e-5;           // of fp32

// q, k and v, as one matrix or, where sizes are no multiples of 256 elements, one by one.
struct Subject {
  int64_t in, out;               // of q; k and v have half of the outputs
  std::vector<int64_t> ranks{};  // 0: no adapter
  bool four_bits = false, bias = false;
  float scale_of_v = 0.5f;  // that of the others is 0.5
  float dropout = 0;
};

const std::vector<Subject> kSubjects{
    {.in = 32, .out = 16, .ranks = {4, 4, 8}},
    {.in = 32, .out = 16, .ranks = {4, 0, 8}, .four_bits = true, .bias = true},
    {.in = 32, .out = 16, .ranks = {4, 2, 8}, .four_bits = true, .scale_of_v = -1.5f},
    {.in = 32, .out = 16, .ranks = {4, 4, 4}, .four_bits = true, .dropout = 0.3f},
    {.in = 24, .out = 12, .ranks = {3, 5, 0}},
    {.in = 24, .out = 12, .ranks = {3, 0, 5}, .four_bits = true, .bias = true},
};

std::vector<LinearSpec> specs_of(const Subject& s) {
  return {{"q", s.in, s.out, s.bias}, {"k", s.in, s.out / 2, s.bias}, {"v", s.in, s.out / 2, s.bias}};
}

ModelConfig config_of(const Subject& s) {
  ModelConfig config;
  const std::vector<LinearSpec> specs = specs_of(s);
  for (size_t i = 0; i < specs.size(); ++i) {
    const float scale = i == 2 ? s.scale_of_v : 0.5f;
    if (s.ranks[i] > 0)
      config.adapters[specs[i].path] = {.rank = s.ranks[i], .scale = scale, .dropout = s.dropout};
    if (s.four_bits) config.quantized[specs[i].path] = {};
  }
  return config;
}

Tensor filled(Arena& memory, const std::string& name, DType dtype, const Shape& shape) {
  const Tensor t = memory.alloc(dtype, shape);
  if (memory.planning()) return t;
  const RandomStream random(1, name);
  Values values(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = random.uniform(static_cast<int64_t>(i));
    values[i] = dtype == DType::u8 ? 256 * unit : 2 * unit - 1;
  }
  bench::from_doubles(t, values);
  return t;
}

// Rows of `width` columns with these values, before `spare` others.
Rows filled_rows(Arena& memory, const std::string& name, int64_t width, int64_t spare) {
  const Tensor own = filled(memory, name, DType::f32, {kTokens, width}),
               all = memory.alloc(DType::f32, {kTokens, width + spare});
  if (!memory.planning())
    for (int64_t row = 0; row < kTokens; ++row)
      std::copy_n(own.as<float>() + row * width, width, all.as<float>() + row * (width + spare));
  return Rows(all).columns(0, width);
}

Values values_of(const Rows& rows) {
  const Values all = bench::to_doubles(rows.of);
  Values own;
  for (int64_t row = 0; row < rows.count(); ++row)
    own.insert(own.end(), &all[static_cast<size_t>(row * rows.stride())],
               &all[static_cast<size_t>(row * rows.stride())] + rows.width);
  return own;
}

std::vector<Tensor> parameters_of(Arena& memory, const ParamList& params, const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (size_t begin = 0, end = 0; begin < params.specs().size(); begin = end) {
    const ParamSpec& first = params.specs()[begin];
    int64_t size = first.shape.size();
    for (end = begin + 1; end < params.specs().size() && params.specs()[end].joined; ++end)
      size += params.specs()[end].shape.size();
    const Tensor all = filled(memory, prefix + first.name, first.dtype.value_or(DType::f32), {size});
    int64_t at = 0;
    for (size_t i = begin; i < end; at += params.specs()[i++].shape.size())
      tensors.push_back(all.slice(at, at + params.specs()[i].shape.size()).view(params.specs()[i].shape));
  }
  return tensors;
}

struct Spare {
  int64_t x = 0, y = 0, dy = 0;
};

struct Results {
  Values y, dx;
  std::vector<Values> gradients;
};

Results computed(const Subject& s, const Spare& spare) {
  const ModelConfig config = config_of(s);
  ParamList params;
  Linear linear(params, config, specs_of(s));
  Arena memory("memory", Device::cpu()), saved("saved", Device::cpu()), scratch("scratch", Device::cpu());
  StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
  Results r;
  const auto run = [&](Stream& stream) {
    const std::vector<Tensor> p = parameters_of(memory, params, "p ");
    std::vector<Tensor> g = parameters_of(memory, params, "g ");
    for (size_t i = 0; i < g.size(); ++i)
      if (const ParamRole role = params.specs()[i].role;
          role != ParamRole::adapter && role != ParamRole::bias)
        g[i] = {};
    const int64_t width = 2 * s.out;
    const Rows x = filled_rows(memory, "x", s.in, spare.x),
               y = Rows(memory.alloc(DType::f32, {kTokens, width + spare.y})).columns(0, width),
               dy = filled_rows(memory, "dy", width, spare.dy);
    const Tensor dx = filled(memory, "dx", DType::f32, {kTokens, s.in});
    LayerCall c{.stream = stream,
                .scratch = scratch,
                .saved = saved,
                .tokens = {},
                .positions = {},
                .boundaries = {},
                .targets = {},
                .target_weights = {},
                .losses = {},
                .dtype = DType::f32,
                .dropout = RandomDraw{.seed = 3, .step = 11}};
    linear.forward(c, ParamView(p), y, x);
    linear.backward(c, ParamView(p), test::Gradients(g, true).view(), dx, dy, x, true);
    if (memory.planning()) return;
    r = {values_of(y), values_of(dx), {}};
    for (const Tensor& t : g)
      if (!t.empty()) r.gradients.push_back(bench::to_doubles(t));
  };
  run(planning.add("plan"));
  for (Arena* arena : {&memory, &saved, &scratch}) arena->commit({.poison = true});
  run(streams.add("compute"));
  return r;
}

}  // namespace

TEST_CASE("a linear layer with adapters has the same values with spare columns of x, y and dy") {
  for (size_t subject = 0; subject < kSubjects.size(); ++subject) {
    CAPTURE(subject);
    const Subject& s = kSubjects[subject];
    const Results expected = computed(s, {});
    for (const Spare& spare :
         {Spare{.x = kSpare}, {.dy = kSpare}, {.x = kSpare, .y = kSpare, .dy = kSpare}}) {
      CAPTURE(spare.x);
      CAPTURE(spare.dy);
      const Results got = computed(s, spare);
      CHECK(bench::max_error(got.y, expected.y) <= kRounding);
      CHECK(bench::max_error(got.dx, expected.dx) <= kRounding);
      REQUIRE(got.gradients.size() == expected.gradients.size());
      for (size_t i = 0; i < got.gradients.size(); ++i)
        CHECK(bench::max_error(got.gradients[i], expected.gradients[i]) <= kRounding);
    }
  }
}

TEST_CASE("adapters use spare columns on a GPU, where they save traffic") {
  constexpr int64_t kIn = 128, kFew = 200, kMany = 512;  // rows: less than 2 in; 2 in and 2 out
  // The columns behind x and behind y.
  const auto spare_of = [](const Subject& s, Device device, int64_t rows, DType dtype = DType::bf16,
                           int64_t multiple = 1) {
    const ModelConfig config = config_of(s);
    ParamList params;
    const Linear linear(params, config, specs_of(s));
    StreamSet planning(device, {.planning = true});
    Arena memory("memory", device);
    const LayerCall c{.stream = planning.add("plan"),
                      .scratch = memory,
                      .saved = memory,
                      .tokens = {},
                      .positions = {},
                      .boundaries = {},
                      .targets = {},
                      .target_weights = {},
                      .losses = {},
                      .dtype = dtype};
    const Rows x = linear.input(c, memory, rows, multiple), y = linear.output(c, memory, rows, multiple);
    CHECK(x.width == s.in);
    CHECK(y.width == 2 * s.out);
    return std::pair(x.stride() - x.width, y.stride() - y.width);
  };
  const std::pair<int64_t, int64_t> none{0, 0}, line{64, 64};
  Subject s{.in = kIn, .out = 128, .ranks = {16, 16, 16}, .four_bits = true};
  CHECK(spare_of(s, Device::cpu(), kMany) == none);
  const Device gpu = Device::cuda(0);
  CHECK(spare_of(s, gpu, 1) == line);
  CHECK(spare_of(s, gpu, 1, DType::f32) == line);  // 48 columns, in lines of 32
  CHECK(spare_of(s, gpu, 1, DType::bf16, 128) == std::pair<int64_t, int64_t>{128, 128});
  CHECK(spare_of(s, gpu, 1, DType::bf16, 0) == none);
  s.ranks = {16, 0, 8};
  CHECK(spare_of(s, gpu, 1, DType::f32) == std::pair<int64_t, int64_t>{32, 32});
  s.ranks = {3, 3, 3};  // rows of u would not be whole accesses of 16 bytes
  CHECK(spare_of(s, gpu, kMany) == none);
  s.ranks = {16, 16, 16};
  s.dropout = 0.1f;  // the gradient of each input has a mask of its own
  CHECK(spare_of(s, gpu, kMany) == std::pair<int64_t, int64_t>{64, 0});
  s.dropout = 0;
  s.four_bits = false;  // a copy of w pays off for many rows
  CHECK(spare_of(s, gpu, kFew) == none);
  CHECK(spare_of(s, gpu, 2 * kIn) == std::pair<int64_t, int64_t>{64, 0});
  CHECK(spare_of(s, gpu, kMany) == line);
}
