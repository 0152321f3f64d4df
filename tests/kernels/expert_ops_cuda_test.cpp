// The ops of mixtures of experts that are no products, and sinks of attention, on a GPU against the CPU. It
// runs on the PTX machine in ptx_vm_tests, and on a GPU in flatshard_tests.

#include <vector>

#include "bench/case.h"
#include "kernels/attention_sink.h"
#include "kernels/clamped_glu.h"
#include "kernels/expert_bias.h"
#include "kernels/expert_rows.h"
#include "kernels/grouped_product.h"
#include "kernels/route.h"
#include "kernels/transpose.h"
#include "runtime/gpu.h"
#include "runtime/targets.h"
#include "tests/kernels/outputs.h"
#include "tests/kernels/random_draw.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;
using test::below;
using test::Random;

namespace {

struct Setting {
  int64_t N, E, k, C;
  bool flag;  // normalized, or weighted
  DType dtype;
  int64_t groups = 0;  // experts are chosen by sigmoid from one of this many groups; 0: by softmax

  RouteRule rule() const {
    if (groups == 0) return {.normalized = flag, .in_turn = N % 7 == 3};
    return {.sigmoid = true,
            .normalized = flag,
            .groups = groups,
            .top_groups = (groups + 1) / 2,
            .scale = flag ? 1.5f : 1.0f};
  }
};

Setting draw(Random& random) {
  Setting s{.N = 1 + below(random, 300),
            .E = 1 + below(random, 70),
            .k = 0,
            .C = 1 + below(random, 90),
            .flag = below(random, 2) == 0,
            .dtype = below(random, 2) == 0 ? DType::bf16 : DType::f32};
  if (below(random, 3) == 0) {
    s.groups = 1 + below(random, 7);
    s.E = s.groups * (2 + below(random, 10));
  }
  const int64_t most = s.groups == 0 ? s.E : s.E / s.groups * s.rule().top_groups;
  s.k = 1 + below(random, std::min<int64_t>(most, 9));
  if (below(random, 2) == 0) s.C = 8 * (1 + below(random, 20));
  return s;
}

std::string name_of(const Setting& s) {
  return str(s.N, " tokens, ", s.k, " of ", s.E, ", ", s.C, " columns", s.flag ? " flag" : "",
             s.groups > 0 ? str(", ", s.groups, " groups") : "");
}

// Some logits are equal; with groups no others are near each other, as sigmoid is rounded differently.
Arg logits_of(const Setting& s) {
  return {"logits", DType::f32, {s.N, s.E}, Role::input, [=](int64_t i, double unit) {
            if (s.groups > 0) return std::floor(200 * unit) / 50 - 2;
            return i % 3 == 0 ? std::floor(8 * unit) / 4 - 1 : 4 * unit - 2;
          }};
}

// Some tokens are padding.
bool is_padding(const Setting& s, int64_t t) { return s.N > 5 && s.E % 2 == 0 && t % 5 == 3; }

// Different experts for each token, or none; some experts are rare.
double expert_of(const Setting& s, int64_t i) {
  const int64_t t = i / s.k, j = i % s.k;
  if (is_padding(s, t)) return -1;
  return static_cast<double>((t * t % 5 + j) % s.E);
}

Case forward_case(const Setting& s) {
  return {.op = "route_forward",
          .shape = name_of(s),
          .dtype = DType::f32,
          .args = {logits_of(s),
                   {"targets",
                    DType::i32,
                    {s.N},
                    Role::constant,
                    [=](int64_t t, double) { return is_padding(s, t) ? kPaddingTarget : t % 3 - 1; }},
                   {"bias",
                    DType::f32,
                    {s.E},
                    Role::constant,
                    [](int64_t e, double) { return static_cast<double>(e % 3) / 4; }},
                   {"experts", DType::i32, {s.N, s.k}, Role::output},
                   {"weights", DType::f32, {s.N, s.k}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            route_forward(stream, {.experts = t["experts"],
                                   .weights = t["weights"],
                                   .logits = t["logits"],
                                   .targets = t["targets"],
                                   .bias = s.groups > 1 ? t["bias"] : Tensor{},
                                   .rule = s.rule()});
          }};
}

Case backward_case(const Setting& s) {
  return {
      .op = "route_backward",
      .shape = name_of(s),
      .dtype = DType::f32,
      .args =
          {logits_of(s),
           {"dweights", DType::f32, {s.N, s.k}, Role::input},
           {"weights", DType::f32, {s.N, s.k}, Role::input},
           {"experts",
            DType::i32,
            {s.N, s.k},
            Role::constant,
            [=](int64_t i, double) { return expert_of(s, i); }},
           {"counts",
            DType::i32,
            {s.E},
            Role::constant,
            [](int64_t i, double) { return static_cast<double>(i % 7); }},
           {"factors", DType::f32, {2}, Role::constant, [](int64_t i, double) { return i == 0 ? 0.1 : 0.2; }},
           {"losses", DType::f32, {s.N, 2}, Role::updated},
           {"dlogits", DType::f32, {s.N, s.E}, Role::output}},
      .run = [=](Stream& stream, Arena&, const Tensors& t) {
        route_backward(stream, {.dlogits = t["dlogits"],
                                .dweights = t["dweights"],
                                .experts = t["experts"],
                                .weights = t["weights"],
                                .logits = t["logits"],
                                .rule = s.rule(),
                                .factors = s.groups > 0 || s.N % 3 == 0 ? Tensor{} : t["factors"],
                                .counts = s.N % 2 == 0 ? t["counts"] : Tensor{},
                                .losses = s.groups > 0 ? Tensor{} : t["losses"]});
      }};
}

Case rows_case(const Setting& s) {
  const int64_t R = expert_row_count(s.N * s.k, s.E);
  return {.op = "expert_rows",
          .shape = name_of(s),
          .dtype = DType::i32,
          .args = {{"experts",
                    DType::i32,
                    {s.N, s.k},
                    Role::constant,
                    [=](int64_t i, double) { return expert_of(s, i); }},
                   {"offsets", DType::i32, {s.E + 1}, Role::output},
                   {"rows", DType::i32, {R}, Role::output},
                   {"places", DType::i32, {s.N, s.k}, Role::output},
                   {"counts",
                    DType::i32,
                    {s.E},
                    Role::updated,
                    [](int64_t i, double) { return static_cast<double>(i); }}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            expert_rows(stream, {.offsets = t["offsets"],
                                 .rows = t["rows"],
                                 .places = t["places"],
                                 .counts = t["counts"],
                                 .experts = t["experts"]});
          }};
}

// A part of the experts, and what expert_rows() says of all of them.
Case part_case(const Setting& s) {
  const int64_t first = s.E / 3, n = 1 + (s.E - first - 1) / 2,
                P = expert_row_count(s.N * std::min(s.k, n), n);
  Case c = rows_case(s);
  c.op = "expert_part";
  c.args.push_back({"part_offsets", DType::i32, {n + 1}, Role::output});
  for (const char* const of_rows : {"part_places", "part_rows", "part_choices"})
    c.args.push_back({of_rows, DType::i32, {P}, Role::output});
  c.run = [=, all = c.run](Stream& stream, Arena& scratch, const Tensors& t) {
    all(stream, scratch, t);
    expert_part(stream, {.offsets = t["part_offsets"],
                         .places = t["part_places"],
                         .rows = t["part_rows"],
                         .choices = t["part_choices"],
                         .all_offsets = t["offsets"],
                         .all_rows = t["rows"],
                         .all_places = t["places"],
                         .first = first});
  };
  return c;
}

Arg places_of(const Setting& s) {
  return {"places", DType::i32, {s.N, s.k}, Role::constant, [=](int64_t i, double) {
            return is_padding(s, i / s.k) ? -1.0 : static_cast<double>((i * 7 + 3) % (s.N * s.k));
          }};
}

Case combine_case(const Setting& s) {
  return {.op = "combine_rows",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"x", s.dtype, {s.N * s.k, s.C}, Role::input},
                   {"addend", s.dtype, {s.N, s.C}, Role::input},
                   {"weights", DType::f32, {s.N, s.k}, Role::input},
                   places_of(s),
                   {"y", s.dtype, {s.N, s.C}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            combine_rows(stream, {.y = t["y"],
                                  .x = t["x"],
                                  .places = t["places"],
                                  .weights = s.flag ? t["weights"] : Tensor{},
                                  .addend = s.N % 2 == 0 ? t["addend"] : Tensor{}});
          }};
}

Case weigh_case(const Setting& s) {
  return {.op = "weigh_rows",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"da", s.dtype, {s.N * s.k, s.C}, Role::updated},
                   {"a", s.dtype, {s.N * s.k, s.C}, Role::updated},
                   {"weights", DType::f32, {s.N, s.k}, Role::input},
                   {"places",
                    DType::i32,
                    {s.N, s.k},
                    Role::constant,
                    [=](int64_t i, double) {
                      return is_padding(s, i / s.k) ? -1.0 : static_cast<double>(s.N * s.k - 1 - i);
                    }},
                   {"dweights", DType::f32, {s.N, s.k}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            weigh_rows(stream, {.dweights = t["dweights"],
                                .da = t["da"],
                                .a = t["a"],
                                .places = s.N % 3 == 0 ? Tensor{} : t["places"],
                                .weights = t["weights"]});
          }};
}

Case gate_forward_case(const Setting& s) {
  return {.op = "gate_rows_forward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"x", s.dtype, {s.N, s.C}, Role::input},
                   {"addend", s.dtype, {s.N, s.C}, Role::input},
                   {"gate", DType::f32, {s.N}, Role::input},
                   {"y", s.dtype, {s.N, s.C}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            gate_rows_forward(
                stream,
                {.y = t["y"], .x = t["x"], .gate = t["gate"], .addend = s.flag ? t["addend"] : Tensor{}});
          }};
}

Case gate_backward_case(const Setting& s) {
  return {.op = "gate_rows_backward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"x", s.dtype, {s.N, s.C}, Role::input},
                   {"dy", s.dtype, {s.N, s.C}, Role::input},
                   {"gate", DType::f32, {s.N}, Role::input},
                   {"dx", s.dtype, {s.N, s.C}, Role::output},
                   {"dgate", DType::f32, {s.N}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            gate_rows_backward(
                stream, {.dx = t["dx"], .dgate = t["dgate"], .dy = t["dy"], .x = t["x"], .gate = t["gate"]});
          }};
}

Case transpose_case(const Setting& s) {
  return {
      .op = "transpose",
      .shape = name_of(s),
      .dtype = s.dtype,
      .args = {{"x", s.dtype, {s.N * s.k, s.C}, Role::input}, {"y", s.dtype, {s.C, s.N * s.k}, Role::output}},
      .run = [=](Stream& stream, Arena&, const Tensors& t) {
        transpose(stream, {.y = t["y"], .x = t["x"]});
      }};
}

// The segments of E experts, of zero to two pieces, and rows of tokens in order; some belong to no token.
struct Segments {
  explicit Segments(const Setting& setting) : s(setting) {
    offsets.push_back(0);
    for (int64_t e = 0; e < s.E; ++e) offsets.push_back(offsets.back() + kSegmentRows * ((e + s.N) % 3));
  }
  int64_t rows() const { return offsets.back() + kSegmentRows; }
  // Choice i of all is at row i, as far as there are rows; other choices have none.
  int64_t choices() const { return s.N * s.k; }

  std::vector<Arg> arguments() const {
    const auto at = [all = offsets](int64_t i, double) {
      return static_cast<double>(all[static_cast<size_t>(i)]);
    };
    const auto token = [k = s.k, choices = choices(), end = offsets.back()](int64_t row, double) {
      return row < choices && row < end && row % 11 != 4 ? static_cast<double>(row / k) : -1.0;
    };
    const auto place = [end = offsets.back()](int64_t i, double) {
      return i < end && i % 11 != 4 ? static_cast<double>(i) : -1.0;
    };
    const auto expert = [all = offsets](int64_t i, double) {
      for (size_t e = 0; e + 1 < all.size(); ++e)
        if (i >= all[e] && i < all[e + 1]) return static_cast<double>(e);
      return -1.0;
    };
    return {{"offsets", DType::i32, {s.E + 1}, Role::constant, at},
            {"rows", DType::i32, {rows()}, Role::constant, token},
            {"places", DType::i32, {s.N, s.k}, Role::constant, place},
            {"experts", DType::i32, {s.N, s.k}, Role::constant, expert},
            {"weights", DType::f32, {s.N, s.k}, Role::input}};
  }

  Setting s;
  std::vector<int64_t> offsets;
};

Case add_bias_case(const Setting& s) {
  const Segments segments(s);
  Case c{.op = "add_expert_bias",
         .shape = name_of(s),
         .dtype = s.dtype,
         .args = segments.arguments(),
         .run = [=](Stream& stream, Arena&, const Tensors& t) {
           add_expert_bias(stream,
                           {.x = t["x"], .bias = t["bias"], .offsets = t["offsets"], .rows = t["rows"]});
         }};
  c.args.push_back({"x", s.dtype, {segments.rows(), s.C}, Role::updated});
  c.args.push_back({"bias", s.dtype, {s.E, s.C}, Role::input});
  return c;
}

Case bias_backward_case(const Setting& s) {
  const Segments segments(s);
  Case c{.op = "expert_bias_backward",
         .shape = name_of(s),
         .dtype = s.dtype,
         .args = segments.arguments(),
         .run = [=](Stream& stream, Arena&, const Tensors& t) {
           ExpertBiasBackward a{.dbias = t["dbias"],
                                .dx = t["dx"],
                                .offsets = t["offsets"],
                                .rows = t["rows"],
                                .accumulate = s.N % 2 == 0};
           if (s.flag) {
             a.dweights = t["dweights"];
             a.bias = t["bias"];
             a.weights = t["weights"];
             a.places = t["places"];
             a.experts = t["experts"];
           }
           expert_bias_backward(stream, a);
         }};
  c.args.push_back({"dx", s.dtype, {segments.rows(), s.C}, Role::input});
  c.args.push_back({"bias", s.dtype, {s.E, s.C}, Role::input});
  c.args.push_back({"dbias", DType::f32, {s.E, s.C}, Role::updated});
  c.args.push_back({"dweights", DType::f32, {s.N, s.k}, Role::updated});
  return c;
}

Case glu_forward_case(const Setting& s) {
  return {.op = "clamped_glu_forward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"x", s.dtype, {s.N, 2 * s.C}, Role::input}, {"y", s.dtype, {s.N, s.C}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            clamped_glu_forward(stream, {.y = t["y"], .x = t["x"], .limit = 0.75f});
          }};
}

Case glu_backward_case(const Setting& s) {
  return {.op = "clamped_glu_backward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"x", s.dtype, {s.N, 2 * s.C}, Role::input},
                   {"dy", s.dtype, {s.N, s.C}, Role::input},
                   {"dx", s.dtype, {s.N, 2 * s.C}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            clamped_glu_backward(stream, {.dx = t["dx"], .dy = t["dy"], .x = t["x"], .limit = 0.75f});
          }};
}

// Heads of C elements, which are some of those in each row.
Heads heads_of(const Setting& s, const Tensor& t) { return {t, 1, s.k}; }
Shape rows_of_heads(const Setting& s) { return {s.N, s.k + 2, s.C}; }

Case sink_forward_case(const Setting& s) {
  return {.op = "attention_sink_forward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"o", s.dtype, rows_of_heads(s), Role::updated},
                   {"lse", DType::f32, {s.k, s.N}, Role::updated},
                   {"sinks", s.dtype, {s.k}, Role::input}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            attention_sink_forward(stream, {.o = heads_of(s, t["o"]), .lse = t["lse"], .sinks = t["sinks"]});
          }};
}

Case sink_backward_case(const Setting& s) {
  return {.op = "attention_sink_backward",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = {{"o", s.dtype, rows_of_heads(s), Role::input},
                   {"do", s.dtype, rows_of_heads(s), Role::input},
                   {"lse", DType::f32, {s.k, s.N}, Role::input},
                   {"sinks", s.dtype, {s.k}, Role::input},
                   {"dsinks", DType::f32, {s.k}, Role::updated}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) {
            attention_sink_backward(stream, {.dsinks = t["dsinks"],
                                             .grad_o = heads_of(s, t["do"]),
                                             .o = heads_of(s, t["o"]),
                                             .lse = t["lse"],
                                             .sinks = t["sinks"],
                                             .accumulate = s.flag});
          }};
}

void check_on_gpu(const Case& c, bool exact) {
  CAPTURE(label(c));
  const Values expected = test::output_values(c, Device::cpu());
  for (const auto& [name, values] : test::output_values(c, Device::cuda(0))) {
    CAPTURE(name);
    if (exact)
      CHECK(values == expected.at(name));
    else
      CHECK(max_error(values, expected.at(name)) <= tolerance(c));
  }
}

}  // namespace

TEST_CASE("ops of experts and sinks on a GPU give what the CPU gives" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  Random random(8);
  for (int i = 0; i < 12; ++i) {
    const Setting s = draw(random);
    in_some_order(i, [&] {
      check_on_gpu(forward_case(s), false);
      check_on_gpu(backward_case(s), false);
      check_on_gpu(rows_case(s), true);
      check_on_gpu(part_case(s), true);
      check_on_gpu(combine_case(s), true);
      check_on_gpu(weigh_case(s), false);
      check_on_gpu(gate_forward_case(s), false);
      check_on_gpu(gate_backward_case(s), false);
      check_on_gpu(transpose_case(s), true);
      check_on_gpu(add_bias_case(s), true);
      check_on_gpu(bias_backward_case(s), false);
      check_on_gpu(glu_forward_case(s), false);
      check_on_gpu(glu_backward_case(s), false);
      check_on_gpu(sink_forward_case(s), false);
      check_on_gpu(sink_backward_case(s), false);
    });
  }
}

TEST_CASE("ops of experts and sinks on a GPU are the same in every order" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  const Setting s{.N = 70, .E = 9, .k = 3, .C = 40, .flag = true, .dtype = DType::bf16};
  for (const Case& c :
       {forward_case(s), backward_case(s), rows_case(s), combine_case(s), weigh_case(s), gate_forward_case(s),
        gate_backward_case(s), transpose_case(s), add_bias_case(s), bias_backward_case(s),
        glu_forward_case(s), glu_backward_case(s), sink_forward_case(s), sink_backward_case(s)}) {
    CAPTURE(label(c));
    const auto bytes = [&] { return test::output_bytes(c, {.device = Device::cuda(0)}); };
    const auto expected = bytes();
    for_every_order([&] { CHECK(bytes() == expected); });
  }
}

TEST_CASE("a GPU takes the largest logits, equal ones by index, NaN last" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> rows{1,   3, 2,         3,  0, 0,   0,     0, nan, 1,
                                nan, 2, -infinity, -5, 4, nan, -0.0f, 0, -1,  1};
  Case c = forward_case({.N = 5, .E = 4, .k = 4, .C = 1, .flag = true, .dtype = DType::f32});
  c.args[0].fill = [=](int64_t i, double) { return static_cast<double>(rows[static_cast<size_t>(i)]); };
  const std::vector<double> expected{1, 3, 2, 0, 0, 1, 2, 3, 3, 1, 0, 2, 2, 1, 0, 3, 3, 0, 1, 2};
  CHECK(test::output_values(c, Device::cuda(0)).at("experts") == expected);
}
