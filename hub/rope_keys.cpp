#include "hub/rope_keys.h"

#include <tuple>

#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json rope_scaling_json(const RopeScalingConfig& s) {
  if (s.kind == RopeScaling::Kind::none) return nullptr;
  ordered_json out{{"rope_type", name_of(s.kind)}, {"factor", s.factor}};
  if (s.kind == RopeScaling::Kind::llama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
    out["original_max_position_embeddings"] = s.original_max_positions;
  }
  return out;
}

RopeScalingConfig read_rope_scaling(const JsonReader& in) {
  RopeScalingConfig s;
  const char* key = in.has("rope_type") ? "rope_type" : "type";
  const std::string kind = in.text(key, "default");
  const std::optional<RopeScaling::Kind> known = named<RopeScaling::Kind>(kind == "default" ? "none" : kind);
  in.must(kind != "none" && known, key, "default, linear or llama3: other scalings are not supported");
  s.kind = *known;
  if (in.has("partial_rotary_factor"))
    in.must(in.positive("partial_rotary_factor") == 1, "partial_rotary_factor", "1");
  if (s.kind == RopeScaling::Kind::none) return {};
  s.factor = in.positive("factor");
  if (s.kind == RopeScaling::Kind::linear) return s;
  s.low_freq_factor = in.positive("low_freq_factor");
  s.high_freq_factor = in.positive("high_freq_factor");
  in.must(s.high_freq_factor > s.low_freq_factor, "high_freq_factor", "larger than low_freq_factor");
  s.original_max_positions = in.size("original_max_position_embeddings");
  return s;
}

bool same(const RopeScalingConfig& a, const RopeScalingConfig& b) {
  const auto all = [](const RopeScalingConfig& s) {
    return std::tie(s.kind, s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_positions);
  };
  return all(a) == all(b);
}

// The base and the scaling of rope_parameters, in place of those of the old keys, with which they must agree.
void read_parameters(const JsonReader& in, const JsonReader& parameters, const char* theta_key,
                     const char* scaling_key, std::optional<double>& theta, RopeScalingConfig& scaling) {
  const RopeScalingConfig own_scaling = read_rope_scaling(parameters);
  if (in.has(scaling_key)) in.must(same(own_scaling, scaling), scaling_key, "equal to rope_parameters");
  scaling = own_scaling;
  const double own_theta = parameters.positive("rope_theta", *theta);
  if (in.has(theta_key)) in.must(own_theta == *theta, theta_key, "equal to that of rope_parameters");
  theta = own_theta;
}

// The parameters of one type of layer; an empty object if there are none.
JsonReader parameters_of(const JsonReader& in, const char* layer_type) {
  const JsonReader all = in.object("rope_parameters");
  return all.has(layer_type) ? all.object(layer_type) : JsonReader("", json::object());
}

}  // namespace

void read_rope(const JsonReader& in, const Format& format, ModelConfig& c) {
  const Family& f = family(format.family);
  if (in.has("partial_rotary_factor"))
    in.must(in.positive("partial_rotary_factor") == 1, "partial_rotary_factor", "1");
  c.rope_theta = in.positive("rope_theta", f.rope_theta);
  if (format.window_rope) c.window_rope_theta = in.positive("rope_local_base_freq", f.window_rope_theta);
  if (in.has("rope_scaling")) c.rope_scaling = read_rope_scaling(in.object("rope_scaling"));
  if (!in.has("rope_parameters")) return;
  if (!format.window_rope) {
    const JsonReader parameters = in.object("rope_parameters");
    for (const json& value : in.value("rope_parameters"))
      in.must(!value.is_object(), "rope_parameters", "one set for all layers");
    return read_parameters(in, parameters, "rope_theta", "rope_scaling", c.rope_theta, c.rope_scaling);
  }
  read_parameters(in, parameters_of(in, "full_attention"), "rope_theta", "rope_scaling", c.rope_theta,
                  c.rope_scaling);
  RopeScalingConfig of_windows;
  read_parameters(in, parameters_of(in, "sliding_attention"), "rope_local_base_freq", "", c.window_rope_theta,
                  of_windows);
  in.must(of_windows.kind == RopeScaling::Kind::none, "rope_parameters",
          "of type default for sliding_attention");
}

void write_rope(ordered_json& out, const Format& format, const ModelConfig& c) {
  out["rope_theta"] = *c.rope_theta;
  if (format.window_rope) out["rope_local_base_freq"] = *c.window_rope_theta;
  out["rope_scaling"] = rope_scaling_json(c.rope_scaling);
}

}  // namespace flatshard
