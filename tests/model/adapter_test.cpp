// Adapters of two layers with the same input, against the formulas in model/adapter.h.

#include "model/adapter.h"

#include <algorithm>

#include "bench/case.h"
#include "runtime/rng.h"
#include "tests/model/gradients.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Values = std::vector<double>;

constexpr int64_t kTokens = 5, kIn = 7;
constexpr int64_t kBetween = 2;  // columns of a layer without an adapter, between those of the two
constexpr int64_t kWidth = 4 + kBetween + 6;
constexpr int64_t kRanks = 2 + 3;
constexpr int64_t kFirst = 3;  // row of a larger input
constexpr RandomDraw kDraw{.seed = 3, .step = 11};
constexpr double kRounding = 1e-5;  // of fp32

const std::vector<AdaptedLayer> kLayers{{0, "first", kIn, 4, {.rank = 2, .scale = 0.7f}},
                                        {4 + kBetween, "second", kIn, 6, {.rank = 3, .scale = -1.7f}}};

// Values in [-1, 1), by name.
Values values_of(const std::string& name, const Shape& shape) {
  const RandomStream random(1, name);
  Values values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * random.uniform(static_cast<int64_t>(i)) - 1;
  return values;
}

// c (rows, columns) += factor a b of row-major matrices.
void add_product(Values& c, double factor, const Values& a, const Values& b, int64_t rows, int64_t columns,
                 bool transpose_a, bool transpose_b) {
  const int64_t depth = std::ssize(a) / rows;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < depth; ++k)
        c[static_cast<size_t>(i * columns + j)] +=
            factor * a[static_cast<size_t>(transpose_a ? k * rows + i : i * depth + k)] *
            b[static_cast<size_t>(transpose_b ? j * depth + k : k * columns + j)];
}

struct Results {
  std::vector<Values> y, da, db;  // by layer
  Values dx;
};

// The mask of a layer's input over 1 - p.
Values mask_of(const AdaptedLayer& layer, float p) {
  const RandomStream random(kDraw.seed, layer.path + ".lora_dropout", kDraw.step);
  Values mask(kTokens * kIn);
  for (size_t i = 0; i < mask.size(); ++i)
    mask[i] =
        random.uniform(kFirst * kIn + static_cast<int64_t>(i)) >= p ? 1 / (1 - static_cast<double>(p)) : 0;
  return mask;
}

Results by_formula(float p) {
  Results r{.y = {}, .da = {}, .db = {}, .dx = values_of("dx", {kTokens, kIn})};
  const Values x = values_of("x", {kTokens, kIn});
  for (const AdaptedLayer& layer : kLayers) {
    const auto [rank, scale, dropout, gaussian] = layer.adapter;
    const Values a = values_of(layer.path + ".a", {rank, kIn}),
                 b = values_of(layer.path + ".b", {layer.out, rank}),
                 dy = values_of(layer.path + ".dy", {kTokens, layer.out}), mask = mask_of(layer, p);
    Values dropped = x, u(static_cast<size_t>(rank * kTokens)), du = u, through(x.size());
    for (size_t i = 0; i < x.size(); ++i) dropped[i] *= mask[i];
    add_product(u, 1, a, dropped, rank, kTokens, false, true);
    r.y.push_back(values_of(layer.path + ".y", {kTokens, layer.out}));
    add_product(r.y.back(), scale, u, b, kTokens, layer.out, true, true);
    r.db.push_back(values_of(layer.path + ".b", {layer.out, rank}));  // gradients are added
    add_product(r.db.back(), scale, dy, u, layer.out, rank, true, true);
    add_product(du, scale, b, dy, rank, kTokens, true, true);
    r.da.push_back(a);
    add_product(r.da.back(), 1, du, dropped, rank, kIn, false, false);
    add_product(through, 1, du, a, kTokens, kIn, true, false);
    for (size_t i = 0; i < x.size(); ++i) r.dx[i] += through[i] * mask[i];
  }
  return r;
}

struct Wanted {
  bool dx = true, da = true, db = true;
};

// Where u and its gradient are, and the factors of the update of y.
enum class Place { apart, spare_columns };

// Gradients begin with the values of their parameters, as if they had been written. A gradient that is not
// wanted has no values.
Results computed(float p, const Wanted& wanted, bool written = true, Place place = Place::apart) {
  std::vector<AdaptedLayer> layers = kLayers;
  for (AdaptedLayer& layer : layers) layer.adapter.dropout = p;
  ParamList params;
  LayerAdapters adapters(params, layers);
  const int64_t spare = place == Place::spare_columns ? kRanks + 1 : 0;
  Arena memory("memory", Device::cpu()), saved("saved", Device::cpu()), scratch("scratch", Device::cpu());
  StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
  Results r;
  const auto run = [&](Stream& stream) {
    const bool fills = !memory.planning();
    const auto filled = [&](const std::string& name, const Shape& shape) {
      const Tensor t = memory.alloc(DType::f32, shape);
      if (fills) bench::from_doubles(t, values_of(name, shape));
      return t;
    };
    const auto parameters = [&](bool a, bool b) {  // declared as the a of both layers, then the b
      const Tensor all_a = memory.alloc(DType::f32, {2 + 3, kIn});
      if (fills) bench::from_doubles(all_a.slice(0, 2), values_of("first.a", {2, kIn}));
      if (fills) bench::from_doubles(all_a.slice(2, 5), values_of("second.a", {3, kIn}));
      const Tensor b0 = filled("first.b", {4, 2}), b1 = filled("second.b", {6, 3}), none{};
      return std::vector<Tensor>{a ? all_a.slice(0, 2) : none, a ? all_a.slice(2, 5) : none, b ? b0 : none,
                                 b ? b1 : none};
    };
    const std::vector<Tensor> p_tensors = parameters(true, true), g = parameters(wanted.da, wanted.db);
    // The outputs of the first layer, of a layer without an adapter, and of the second layer.
    const auto packed = [&](const std::string& suffix, int64_t more = 0) {
      const Tensor t = memory.alloc(DType::f32, {kTokens, kWidth + more});
      if (!fills) return t;
      const Values first = values_of("first" + suffix, {kTokens, 4}),
                   second = values_of("second" + suffix, {kTokens, 6});
      Values all(static_cast<size_t>(t.size()));
      for (size_t row = 0; row < kTokens; ++row) {
        std::copy_n(&first[row * 4], 4, &all[row * static_cast<size_t>(kWidth + more)]);
        std::copy_n(&second[row * 6], 6, &all[row * static_cast<size_t>(kWidth + more) + 4 + kBetween]);
      }
      bench::from_doubles(t, all);
      return t;
    };
    const Tensor y = packed(".y"), dx = wanted.dx ? filled("dx", {kTokens, kIn}) : Tensor{};
    const Rows dy = Rows(packed(".dy", spare)).columns(0, kWidth),
               x = Rows(memory.alloc(DType::f32, {kTokens, kIn + spare})).columns(0, kIn);
    if (fills) {
      const Values own = values_of("x", {kTokens, kIn});
      Values all(static_cast<size_t>(x.of.size()));
      for (size_t row = 0; row < kTokens; ++row)
        std::copy_n(&own[row * kIn], kIn, &all[row * static_cast<size_t>(kIn + spare)]);
      bench::from_doubles(x.of, all);
    }
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
                .dropout = kDraw};
    if (place == Place::apart) {
      adapters.forward(c, ParamView(p_tensors), y, x, kFirst);
    } else {
      adapters.project(c, ParamView(p_tensors), x, kFirst);
      const Tensor b = memory.alloc(DType::f32, {kWidth, kRanks});
      for (const auto& [column, out] : {std::pair<int64_t, int64_t>{0, 4}, {4, kBetween}, {4 + kBetween, 6}})
        adapters.place_b(c, ParamView(p_tensors), b.slice(column, column + out), column);
      gemm(c, {.c = y, .a = x.columns(kIn, kRanks), .b = b, .transpose_b = true, .accumulate = true});
    }
    adapters.backward(c, ParamView(p_tensors), test::Gradients(g, written).view(), dx, dy, x, kFirst);
    if (!fills) return;
    const auto values = [](const Tensor& t) { return t.empty() ? Values{} : bench::to_doubles(t); };
    const auto columns = [&](size_t first, size_t width) {
      const Values all = values(y);
      Values some;
      for (size_t row = 0; row < kTokens; ++row)
        some.insert(some.end(), &all[row * kWidth + first], &all[row * kWidth + first] + width);
      return some;
    };
    r = {{columns(0, 4), columns(4 + kBetween, 6)},
         {values(g[0]), values(g[1])},
         {values(g[2]), values(g[3])},
         values(dx)};
  };
  run(planning.add("plan"));
  for (Arena* arena : {&memory, &saved, &scratch}) arena->commit();
  run(streams.add("compute"));
  return r;
}

void check_equal(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  CHECK(bench::max_error(got, expected) <= kRounding);
}

}  // namespace

TEST_CASE("adapters add scale b a x to each layer, and have its gradients, with and without dropout") {
  for (const float p : {0.0f, 0.4f}) {
    CAPTURE(p);
    const Results got = computed(p, {}), expected = by_formula(p);
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      CAPTURE(layer);
      check_equal(got.y[layer], expected.y[layer]);
      check_equal(got.da[layer], expected.da[layer]);
      check_equal(got.db[layer], expected.db[layer]);
    }
    check_equal(got.dx, expected.dx);
  }
}

TEST_CASE("adapters have the same values with u and its gradient in spare columns of x and dy") {
  for (const float p : {0.0f, 0.4f}) {
    CAPTURE(p);
    const Results got = computed(p, {}, true, Place::spare_columns), expected = by_formula(p);
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      CAPTURE(layer);
      check_equal(got.y[layer], expected.y[layer]);
      check_equal(got.da[layer], expected.da[layer]);
      check_equal(got.db[layer], expected.db[layer]);
    }
    check_equal(got.dx, expected.dx);
    CHECK(computed(p, {.dx = false}, true, Place::spare_columns).da == got.da);
  }
}

TEST_CASE("the first gradients of an adapter replace what was in their buffers") {
  for (const float p : {0.0f, 0.4f}) {
    CAPTURE(p);
    const Results first = computed(p, {}, false);
    Results expected = by_formula(p);
    const auto subtract = [](Values& sum, const Values& start) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] -= start[i];
    };
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      CAPTURE(layer);
      const auto& [index, path, in, out, adapter] = kLayers[layer];
      subtract(expected.da[layer], values_of(path + ".a", {adapter.rank, in}));
      subtract(expected.db[layer], values_of(path + ".b", {out, adapter.rank}));
      check_equal(first.da[layer], expected.da[layer]);
      check_equal(first.db[layer], expected.db[layer]);
    }
  }
}

TEST_CASE("gradients of an adapter do not depend on which others are wanted") {
  for (const float p : {0.0f, 0.4f}) {
    CAPTURE(p);
    const Results all = computed(p, {});
    CHECK(computed(p, {.dx = false}).da == all.da);
    CHECK(computed(p, {.dx = false}).db == all.db);
    CHECK(computed(p, {.da = false}).dx == all.dx);
    CHECK(computed(p, {.db = false}).da == all.da);
    CHECK(computed(p, {.da = false, .db = false}).dx == all.dx);
  }
}
