#include <algorithm>
#include <cmath>

#include "hub/format.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

using Kind = RopeScaling::Kind;

constexpr char kOriginal[] = "original_max_position_embeddings";

double factor_of_positions(const ModelConfig& c, int64_t original) {
  return std::max(1.0, static_cast<double>(c.max_positions) / static_cast<double>(original));
}

// The names by which Qwen's configs declare positions on several axes, as if they were a scaling.
constexpr char kAxes[] = "mrope", kSections[] = "mrope_section";

// For Phi-3, older versions of transformers know only "type", and refuse keys other than these three.
ordered_json longrope_json(const ModelConfig& c, const Format& format) {
  const RopeScalingConfig& s = c.rope_scaling;
  ordered_json out{
      {"type", name_of(s.kind)}, {"short_factor", s.short_factor}, {"long_factor", s.long_factor}};
  if (s.factor != factor_of_positions(c, s.original_max_positions)) out["factor"] = s.factor;
  if (s.attention_factor > 0) out["attention_factor"] = s.attention_factor;
  if (format.original_positions == 0) out[kOriginal] = s.original_max_positions;
  return out;
}

ordered_json yarn_json(const RopeScalingConfig& s) {
  ordered_json out{{"rope_type", name_of(s.kind)},
                   {"factor", s.factor},
                   {"beta_fast", s.beta_fast},
                   {"beta_slow", s.beta_slow}};
  if (s.attention_factor > 0) out["attention_factor"] = s.attention_factor;
  if (!s.truncate) out["truncate"] = false;
  for (const auto& [key, value] : {std::pair{"mscale", s.mscale}, {"mscale_all_dim", s.mscale_all_dim}})
    if (value > 0) out[key] = value;
  out[kOriginal] = s.original_max_positions;
  return out;
}

ordered_json rope_scaling_json(const ModelConfig& c, const Format& format) {
  const RopeScalingConfig& s = c.rope_scaling;
  if (family(c.family).rope_axes) return {{"type", kAxes}, {kSections, c.rope_sections}};
  if (s.kind == Kind::none)
    return format.scaled_by_default ? ordered_json{{"rope_type", "default"}} : ordered_json(nullptr);
  if (s.kind == Kind::yarn) return yarn_json(s);
  if (s.kind == Kind::longrope) return longrope_json(c, format);
  ordered_json out{{"rope_type", name_of(s.kind)}, {"factor", s.factor}};
  if (s.kind == Kind::llama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
    out[kOriginal] = s.original_max_positions;
  }
  return out;
}

// The inputs of a file's scaling besides its own keys.
struct Around {
  const JsonReader& file;
  const Format& format;
  const ModelConfig& config;
};

// The key may be in the file or in its scaling.
int64_t original_positions(const JsonReader& in, const Around& around) {
  const bool own_key = around.format.original_positions > 0 || around.file.has(kOriginal);
  if (!own_key) return in.size(kOriginal, around.config.max_positions);
  const int64_t positions = around.file.size(kOriginal, around.format.original_positions);
  in.must(in.size(kOriginal, positions) == positions, kOriginal,
          str(positions, ", the value for the whole file"));
  return positions;
}

Kind kind_of(const JsonReader& in, const Format& format) {
  const char* key = in.has("rope_type") ? "rope_type" : "type";
  std::string kind = in.text(key, "default");
  if (format.only_longrope) {
    const bool longrope = kind == "su" || kind == "yarn" || kind == "longrope";  // old names
    in.must(longrope || kind == "default", key, "default or longrope");
    if (longrope) kind = "longrope";
  }
  if (family(format.family).rope_axes) {
    in.must(kind == kAxes || kind == "default", key, "default or mrope: other scalings are not supported");
    return Kind::none;
  }
  const std::optional<Kind> known = named<Kind>(kind == "default" ? "none" : kind);
  in.must(kind != "none" && known, key,
          "default, linear, llama3, yarn or longrope: other scalings are not supported");
  return *known;
}

void read_yarn(const JsonReader& in, RopeScalingConfig& s) {
  s.beta_fast = in.positive("beta_fast", s.beta_fast);
  s.beta_slow = in.positive("beta_slow", s.beta_slow);
  s.truncate = in.flag("truncate", true);
  s.mscale = in.positive("mscale", 0);
  s.mscale_all_dim = in.positive("mscale_all_dim", 0);
}

int64_t rotated_width(const ModelConfig& c) {
  const int64_t head_dim = c.head_dim > 0 ? c.head_dim : c.hidden / c.heads;
  return static_cast<int64_t>(static_cast<double>(head_dim) * *c.partial_rotary_factor);
}

RopeScalingConfig read_rope_scaling(const JsonReader& in, const Around& around) {
  RopeScalingConfig s;
  s.kind = kind_of(in, around.format);
  if (s.kind == Kind::none) return {};
  if (s.kind == Kind::linear) {
    s.factor = in.positive("factor");
    return s;
  }
  if (s.kind == Kind::llama3) {
    s.factor = in.positive("factor");
    s.low_freq_factor = in.positive("low_freq_factor");
    s.high_freq_factor = in.positive("high_freq_factor");
    in.must(s.high_freq_factor > s.low_freq_factor, "high_freq_factor", "larger than low_freq_factor");
    if (!around.file.has(kOriginal)) in.require(kOriginal);
    s.original_max_positions = original_positions(in, around);
    return s;
  }
  s.original_max_positions = original_positions(in, around);
  s.factor = in.positive("factor", factor_of_positions(around.config, s.original_max_positions));
  s.attention_factor = in.positive("attention_factor", 0);
  if (s.kind == Kind::yarn) {
    read_yarn(in, s);
    return s;
  }
  const auto pairs = static_cast<size_t>(rotated_width(around.config) / 2);
  s.short_factor = in.positives("short_factor", pairs);
  s.long_factor = in.positives("long_factor", pairs);
  return s;
}

// Reads the factor from the file, or from its rope_parameters.
double partial_rotary_factor(const JsonReader& in, const Format& format, double absent) {
  constexpr char kKey[] = "partial_rotary_factor";
  const double factor = in.positive(kKey, absent);
  in.must(format.partial_rotary || factor == 1, kKey, "1");
  return factor;
}

// Reads base and scaling from rope_parameters. They replace the values of the old keys, which must agree.
void read_parameters(const Around& around, const JsonReader& parameters, const char* theta_key,
                     const char* scaling_key, std::optional<double>& theta, RopeScalingConfig& scaling) {
  const JsonReader& in = around.file;
  partial_rotary_factor(parameters, around.format, 1);
  const RopeScalingConfig own_scaling = read_rope_scaling(parameters, around);
  if (in.has(scaling_key)) in.must(own_scaling == scaling, scaling_key, "equal to rope_parameters");
  scaling = own_scaling;
  const double own_theta = parameters.positive("rope_theta", *theta);
  if (in.has(theta_key)) in.must(own_theta == *theta, theta_key, "equal to that of rope_parameters");
  theta = own_theta;
}

// The rope_parameters of one type of layer; an empty object if there are none.
JsonReader parameters_of(const JsonReader& in, const char* layer_type) {
  const JsonReader all = in.object("rope_parameters");
  return all.has(layer_type) ? all.object(layer_type) : JsonReader("", json::object());
}

void read_sections(const JsonReader& in, ModelConfig& c) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!in.has(key) || !in.object(key).has(kSections)) continue;
    const JsonReader scaling = in.object(key);
    const std::vector<double> sections = scaling.positives(kSections, c.rope_sections.size());
    const auto is_whole = [](double size) { return size == std::floor(size) && size <= INT32_MAX; };
    scaling.must(std::all_of(sections.begin(), sections.end(), is_whole), kSections,
                 "whole numbers below 2^31");
    std::copy(sections.begin(), sections.end(), c.rope_sections.begin());
  }
}

}  // namespace

void read_rope(const JsonReader& in, const Format& format, ModelConfig& c) {
  const Family& f = family(format.family);
  if (f.rope_axes) read_sections(in, c);
  const Around around{in, format, c};
  const bool has_parameters = in.has("rope_parameters");
  c.partial_rotary_factor = partial_rotary_factor(in, format, f.partial_rotary_factor);
  if (has_parameters && !format.window_rope)
    c.partial_rotary_factor =
        partial_rotary_factor(in.object("rope_parameters"), format, *c.partial_rotary_factor);
  c.rope_theta = in.positive("rope_theta", f.rope_theta);
  if (format.window_rope) c.window_rope_theta = in.positive("rope_local_base_freq", f.window_rope_theta);
  if (format.scaled_by_default && !has_parameters) in.require("rope_scaling");
  if (in.has("rope_scaling")) c.rope_scaling = read_rope_scaling(in.object("rope_scaling"), around);
  if (!has_parameters) return;
  if (!format.window_rope) {
    const JsonReader parameters = in.object("rope_parameters");
    for (const json& value : in.value("rope_parameters"))
      in.must(!value.is_object(), "rope_parameters", "one set for all layers");
    return read_parameters(around, parameters, "rope_theta", "rope_scaling", c.rope_theta, c.rope_scaling);
  }
  read_parameters(around, parameters_of(in, "full_attention"), "rope_theta", "rope_scaling", c.rope_theta,
                  c.rope_scaling);
  RopeScalingConfig of_windows;
  read_parameters(around, parameters_of(in, "sliding_attention"), "rope_local_base_freq", "",
                  c.window_rope_theta, of_windows);
  in.must(of_windows.kind == Kind::none, "rope_parameters", "of type default for sliding_attention");
}

void write_rope(ordered_json& out, const Format& format, const ModelConfig& c) {
  out["rope_theta"] = *c.rope_theta;
  if (format.window_rope) out["rope_local_base_freq"] = *c.window_rope_theta;
  if (format.partial_rotary) out["partial_rotary_factor"] = *c.partial_rotary_factor;
  out["rope_scaling"] = rope_scaling_json(c, format);
  if (format.original_positions > 0)
    out[kOriginal] =
        c.rope_scaling.kind == Kind::none ? c.max_positions : c.rope_scaling.original_max_positions;
}

}  // namespace flatshard
