#include "hub/gguf/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "checkpoint/safetensors.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

using Kind = RopeScaling::Kind;

constexpr const char *kFactors = "rope_freqs.weight", *kShort = "rope_factors_short.weight",
                     *kLong = "rope_factors_long.weight";

std::vector<float> floats_of(const std::vector<double>& values) { return {values.begin(), values.end()}; }

// The divisor of each frequency in llama3.
std::vector<float> llama3_divisors(const ModelConfig& c) {
  const std::vector<double> plain = rope_frequencies(c.rotated_width(), *c.rope_theta),
                            scaled = rope_frequencies(c.rotated_width(), *c.rope_theta, c.scaling());
  std::vector<float> divisors;
  for (size_t i = 0; i < plain.size(); ++i) divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return divisors;
}

// Reads a divisor for each pair of rotated elements. Checks their number before it allocates memory.
std::vector<float> read_divisors(const GgufFile& file, const GgufTensor& tensor, const ModelConfig& c) {
  const std::vector<int64_t> shape{c.rotated_width() / 2};
  check(tensor.shape == shape, file.path(), ": ", tensor.name, " is ", in_brackets(tensor.shape),
        ", must be ", in_brackets(shape), ", one value for each pair of rotated elements");
  std::vector<float> divisors(static_cast<size_t>(shape[0]));
  file.read(tensor, 0, shape[0], divisors.data());
  for (const float divisor : divisors)
    check(divisor > 0 && std::isfinite(divisor), file.path(), ": ", tensor.name, " has ", divisor,
          ", must be positive and finite");
  return divisors;
}

RopeScalingConfig llama3_of(double factor, double original, double high = 4) {
  return {.kind = Kind::llama3,
          .factor = factor,
          .low_freq_factor = 1,
          .high_freq_factor = high,
          .original_max_positions = original >= 1 && original < 1e15 ? std::llround(original) : 1};
}

// Guesses the scalings of llama3 that may have these divisors. With x = 1 / wavelength, the inverse y of a
// divisor is 1 / factor up to x = low / original, 1 from x = high / original on, and linear between the two.
// Multiplying low, high and original by a number changes nothing, so low is 1; high is 4 in all published
// models.
std::vector<RopeScalingConfig> llama3_guesses(const std::vector<float>& divisors, const ModelConfig& c) {
  std::vector<double> x = rope_frequencies(c.rotated_width(), *c.rope_theta), y;
  for (double& frequency : x) frequency /= 2 * std::numbers::pi;
  for (const float divisor : divisors) y.push_back(1 / static_cast<double>(divisor));
  const size_t pairs = y.size(), kept = static_cast<size_t>(std::count(y.begin(), y.end(), 1.0));
  if (kept == pairs) return {llama3_of(1, 8192)};
  const double factor = shortest_decimal(static_cast<double>(divisors.back())), floor = 1 / factor;
  // First the published models, then a model without frequencies between the kept and the fully divided ones.
  std::vector<RopeScalingConfig> guesses{
      llama3_of(factor, 8192),
      llama3_of(factor, kept > 0 ? std::ceil(4 / x[kept - 1]) : std::floor(1 / x.front()))};
  const auto share = [&](size_t i) { return (y[i] - floor) / (1 - floor); };  // 0 at low, 1 at high
  const auto is_between = [&](size_t i) { return i < pairs && y[i] > y.back() && y[i] < 1; };
  if (is_between(kept)) guesses.push_back(llama3_of(factor, (1 + 3 * share(kept)) / x[kept]));
  // Other values of high: one line passes through two points. Through one point many lines pass; the flattest
  // has low at the next frequency, or high at the last kept one.
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  if (is_between(kept) && is_between(kept + 1)) {
    const double slope = (share(kept) - share(kept + 1)) / (x[kept] - x[kept + 1]),
                 offset = slope * x[kept] - share(kept);
    guesses.push_back(llama3_of(factor, slope / offset, rounded(1 + 1 / offset)));
  } else if (is_between(kept) && kept + 1 < pairs) {
    double slope = share(kept) / (x[kept] - x[kept + 1]);
    if (kept > 0) slope = std::max(slope, (1 - share(kept)) / (x[kept - 1] - x[kept]));
    const double original = std::floor(1 / (x[kept] - share(kept) / slope));
    guesses.push_back(llama3_of(factor, original, 1 + (original * x[kept] - 1) / share(kept)));
  }
  // No frequency is between, and the kept and divided ones are closer than 1 to 4.
  if (kept > 0 && kept < pairs && !is_between(kept)) {
    const double original = std::floor(1 / x[kept]);
    guesses.push_back(llama3_of(factor, original, original * x[kept - 1]));
  }
  // If no frequency is divided by the full factor, the line determines it, or a line that only one divisor
  // has to meet.
  if (pairs - kept >= 2) {
    const double slope = (y[pairs - 2] - y[pairs - 1]) / (x[pairs - 2] - x[pairs - 1]),
                 whole = rounded(4 / (3 * (y[pairs - 1] - slope * x[pairs - 1]) + 1));
    guesses.push_back(llama3_of(whole, 3 * slope / (1 - 1 / whole)));
  } else if (kept > 0) {
    const double original = std::ceil(4 / x[kept - 1]), way = (original * x.back() - 1) / 3;
    guesses.push_back(llama3_of((1 - way) / (y.back() - way), original));
  }
  return guesses;
}

RopeScalingConfig llama3_with(const std::vector<float>& divisors, const GgufFile& file, ModelConfig c) {
  constexpr float kEqual = 1e-5f;  // divisors in the file have 32 bits
  for (const RopeScalingConfig& guess : llama3_guesses(divisors, c)) {
    if (!(guess.factor >= 1 && std::isfinite(guess.factor) && guess.high_freq_factor > guess.low_freq_factor))
      continue;
    c.rope_scaling = guess;
    const std::vector<float> expected = llama3_divisors(c);
    bool equal = true;
    for (size_t i = 0; i < divisors.size(); ++i)
      equal = equal && std::fabs(expected[i] - divisors[i]) <= kEqual * divisors[i];
    if (equal) return guess;
  }
  fail(str(file.path(), ": ", kFactors,
           " has values that no scaling of Llama 3 gives: start from the model's Hugging Face folder "
           "instead"));
}

RopeScalingConfig longrope_with(const GgufTensor& of_short, const GgufTensor& of_long, const GgufFile& file,
                                const GgufKeys& keys, const ModelConfig& c) {
  RopeScalingConfig s{.kind = Kind::longrope,
                      .original_max_positions = keys.size("rope.scaling.original_context_length")};
  for (const auto& [tensor, divisors] : {std::pair{&of_short, &s.short_factor}, {&of_long, &s.long_factor}})
    for (const float divisor : read_divisors(file, *tensor, c))
      divisors->push_back(shortest_decimal(static_cast<double>(divisor)));
  check(s.original_max_positions > 1, keys.name("rope.scaling.original_context_length"), " is ",
        s.original_max_positions, ", must be at least 2");
  s.factor =
      std::max(1.0, static_cast<double>(c.max_positions) / static_cast<double>(s.original_max_positions));
  // The attention factor is stored unless the method computes the same.
  ModelConfig with = c;
  with.rope_scaling = s;
  const double attention = keys.real("rope.scaling.attn_factor", 1);
  if (std::fabs(with.scaling().attention_factor - attention) > 1e-6 * attention)
    s.attention_factor = attention;
  return s;
}

}  // namespace

std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& c) {
  const RopeScalingConfig& s = c.rope_scaling;
  if (s.kind == Kind::llama3) return {{kFactors, llama3_divisors(c)}};
  if (s.kind == Kind::longrope)
    return {{kLong, floats_of(s.long_factor)}, {kShort, floats_of(s.short_factor)}};
  return {};
}

bool is_gguf_rope_tensor(const std::string& name) {
  return name == kFactors || name == kShort || name == kLong;
}

std::vector<std::string> put_gguf_rope(GgufWriter& out, const std::string& prefix, const ModelConfig& c) {
  if (c.positions == PositionKind::learned) return {};
  const RopeScalingConfig& s = c.rope_scaling;
  const std::string rope = prefix + "rope.", scaling = rope + "scaling.";
  out.put_size(rope + "dimension_count", c.rotated_width());
  out.put(rope + "freq_base", *c.rope_theta);
  if (s.kind == Kind::linear || s.kind == Kind::yarn) {
    out.put(scaling + "type", name_of(s.kind));
    out.put(scaling + "factor", s.factor);
  }
  if (s.kind == Kind::yarn || s.kind == Kind::longrope)
    out.put_size(scaling + "original_context_length", s.original_max_positions);
  if (s.kind == Kind::yarn) {
    out.put(scaling + "yarn_beta_fast", s.beta_fast);
    out.put(scaling + "yarn_beta_slow", s.beta_slow);
  }
  if (s.kind != Kind::longrope) return {};
  out.put(scaling + "attn_factor", c.scaling().attention_factor);
  return {str("llama.cpp divides frequencies by the long factors if its context (-c) is above ",
              s.original_max_positions, " tokens, however long the text is")};
}

RopeScalingConfig read_gguf_scaling(const GgufFile& file, const GgufKeys& keys, const ModelConfig& c) {
  const std::string type = keys.text("rope.scaling.type");
  check(type.empty() || type == "none" || type == "linear" || type == "yarn" || type == "longrope",
        keys.name("rope.scaling.type"), " is \"", printable(type),
        "\", must be none, linear, yarn or longrope");
  const GgufTensor *factors = file.find(kFactors), *of_short = file.find(kShort), *of_long = file.find(kLong);
  // Older files only have rope.scale_linear.
  const double factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 1));
  if (type == "yarn" || ((type == "linear" || type.empty()) && factor != 1)) {
    check(!factors && !of_short && !of_long, file.path(), ": has both ", type.empty() ? "linear" : type,
          " RoPE scaling and ", kFactors, " or rope_factors, which is not supported");
    if (type != "yarn") return {.kind = Kind::linear, .factor = factor};
    return {.kind = Kind::yarn,
            .factor = factor,
            .original_max_positions = keys.size("rope.scaling.original_context_length"),
            .beta_fast = keys.real("rope.scaling.yarn_beta_fast", 32),
            .beta_slow = keys.real("rope.scaling.yarn_beta_slow", 1)};
  }
  check(!of_short == !of_long && (of_short || type != "longrope"), file.path(), ": ",
        of_short ? kLong : kShort, " is missing: longrope has two sets of factors");
  check(!of_short || !factors, file.path(), ": has both ", kFactors, " and ", kShort);
  if (of_short) return longrope_with(*of_short, *of_long, file, keys, c);
  return factors ? llama3_with(read_divisors(file, *factors, c), file, c) : RopeScalingConfig{};
}

}  // namespace flatshard
