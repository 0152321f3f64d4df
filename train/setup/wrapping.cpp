#include "train/setup/wrapping.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "model/names.h"
#include "model/param_selection.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

// The unit that a policy assigns to each parameter, in the model's order; "" if none.
using UnitNames = std::vector<std::string>;

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs()) names.push_back(spec.name);
  return names;
}

// The modules that contain a parameter, outermost first: a and a.b for a.b.weight.
std::vector<std::string> modules_of(const std::string& param) {
  std::vector<std::string> modules;
  for (size_t dot = param.find('.'); dot != std::string::npos; dot = param.find('.', dot + 1))
    modules.push_back(param.substr(0, dot));
  return modules;
}

// The block of a parameter, of the text, the tower or the connector: model.layers.0; "" if it is in none.
std::string block_of(const ModelConfig& config, const std::string& param) {
  std::vector<std::string> prefixes{param_names(config.family).block};
  if (config.vision)
    prefixes.insert(prefixes.end(), {param_names(config.vision->tower.names).block,
                                     param_names("perceiver").block, kModalityProjection, kMerger});
  for (const std::string& prefix : prefixes)
    if (const std::string head = prefix.substr(0, prefix.find('{')); param.starts_with(head))
      return param.substr(0, param.find('.', head.size()));
  return "";
}

// The number of modules above the blocks: model.layers.0 is the third in model.layers.0.mlp.up_proj.
size_t block_depth(const Model& model) {
  return modules_of(block_prefix(param_names(model.config().family), 0)).size();
}

bool in_block(const Model& model, const std::string& param) {
  const std::string prefix = param_names(model.config().family).block;
  return param.starts_with(prefix.substr(0, prefix.find('{')));
}

UnitNames by_block(const Model& model) {
  UnitNames units;
  for (const std::string& name : names_of(model)) {
    const std::string experts = module_of_experts(name);
    units.push_back(experts.empty() ? block_of(model.config(), name) : experts);
  }
  return units;
}

// A block's children that contain modules themselves; its norms do not.
UnitNames by_attention_and_mlp(const Model& model) {
  UnitNames units;
  for (const std::string& name : names_of(model)) {
    const std::vector<std::string> modules = modules_of(name);
    const size_t depth = block_depth(model);
    if (const std::string experts = module_of_experts(name); !experts.empty())
      units.push_back(experts);
    else if (!in_block(model, name))
      units.push_back(block_of(model.config(), name));  // a block of the tower or the connector is one unit
    else
      units.push_back(modules.size() > depth + 1 ? modules[depth] : "");
  }
  return units;
}

UnitNames by_pattern(const Model& model, const std::vector<std::string>& patterns) {
  check(!patterns.empty(), "parallel.wrap = \"pattern\" needs parallel.wrap_patterns, such as [\"*.mlp\"]");
  std::vector<bool> used(patterns.size());
  UnitNames units;
  std::string some_module;
  for (const std::string& name : names_of(model)) {
    std::string unit;
    for (const std::string& module : modules_of(name)) {
      some_module = module;
      for (size_t i = 0; i < patterns.size(); ++i) {
        if (!matches(patterns[i], module)) continue;
        used[i] = true;
        if (unit.empty()) unit = module;
      }
    }
    units.push_back(unit);
  }
  for (size_t i = 0; i < patterns.size(); ++i)
    check(bool{used[i]}, "parallel.wrap_patterns: \"", patterns[i],
          "\" matches no module; modules look like ", some_module);
  return units;
}

UnitNames by_size(const Model& model, int64_t least) {
  check(least > 0, "parallel.wrap = \"size\" needs parallel.wrap_size, the minimum parameters of a unit");
  std::vector<int64_t> sizes;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs()) sizes.push_back(spec.shape.size());
  const std::vector<std::string> names = names_of(model);
  // Modules and their parameters, by depth, deepest first.
  std::map<size_t, std::map<std::string, std::vector<size_t>>, std::greater<>> modules_at;
  for (size_t i = 0; i < names.size(); ++i) {
    size_t depth = 0;
    for (const std::string& module : modules_of(names[i])) modules_at[++depth][module].push_back(i);
  }
  UnitNames units(names.size());
  for (const auto& [depth, modules] : modules_at)
    for (const auto& [module, params] : modules) {
      int64_t left = 0;
      for (const size_t i : params) left += units[i].empty() ? sizes[i] : 0;
      if (left < least) continue;
      for (const size_t i : params)
        if (units[i].empty()) units[i] = module;
    }
  return units;
}

UnitNames wrapped(const Model& model, const WrapOptions& options) {
  check(options.policy == WrapPolicy::pattern || options.patterns.empty(),
        "parallel.wrap_patterns has no effect without parallel.wrap = \"pattern\"");
  check(options.policy == WrapPolicy::size || options.size == 0,
        "parallel.wrap_size has no effect without parallel.wrap = \"size\"");
  switch (options.policy) {
    case WrapPolicy::block:
      break;
    case WrapPolicy::attention_mlp:
      return by_attention_and_mlp(model);
    case WrapPolicy::pattern:
      return by_pattern(model, options.patterns);
    case WrapPolicy::size:
      return by_size(model, options.size);
    case WrapPolicy::none:
      return UnitNames(names_of(model).size(), "model");
  }
  return by_block(model);
}

}  // namespace

LayerCut layer_cut(const WrapOptions& options) {
  return options.policy == WrapPolicy::attention_mlp ? LayerCut::halves : LayerCut::blocks;
}

Wrapping::Wrapping(const Model& model, const WrapOptions& options) {
  for (int layer = 0; layer < model.layer_count(); ++layer) list_of_.push_back(model.param_list_of(layer));
  assign(model, wrapped(model, options), options);
  find_first_trained_layer(model);
  assign_roles();
  whole_index_.resize(units_.size());
  std::iota(whole_index_.begin(), whole_index_.end(), 0);
}

void Wrapping::check_divided(const std::function<int(int)>& stage_of) const {
  std::vector<int> stage(units_.size(), -1);
  for (int layer = 0; layer < layer_count(); ++layer)
    for (const int unit : units_of(layer)) {
      int& of_unit = stage[static_cast<size_t>(unit)];
      check(of_unit < 0 || of_unit == stage_of(layer), "the unit \"", roles_[static_cast<size_t>(unit)].name,
            "\" is used by several pipeline stages: set parallel.wrap = \"block\" and remove "
            "parallel.replicate, or set parallel.stages = 1");
      of_unit = stage_of(layer);
    }
}

Wrapping Wrapping::restricted(const std::function<bool(int)>& owns) const {
  Wrapping part;
  part.list_of_ = list_of_;
  part.first_trained_layer_ = first_trained_layer_;
  part.places_.resize(places_.size());
  part.units_of_.resize(units_of_.size());
  std::vector<bool> owned(units_.size());
  for (int layer = 0; layer < layer_count(); ++layer)
    for (const int unit : units_of(layer))
      owned[static_cast<size_t>(unit)] = owned[static_cast<size_t>(unit)] || owns(layer);
  std::vector<int> new_index(units_.size(), -1);
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!owned[unit]) continue;
    new_index[unit] = static_cast<int>(part.units_.size());
    part.units_.push_back(units_[unit]);
    part.roles_.push_back(roles_[unit]);
    part.roles_.back().index = new_index[unit];
    part.whole_index_.push_back(whole_index_[unit]);
  }
  for (int layer = 0; layer < layer_count(); ++layer) {
    if (!owns(layer)) continue;
    std::vector<Place> places = this->places(layer);
    for (Place& place : places) place.unit = new_index[static_cast<size_t>(place.unit)];
    std::vector<int> units = units_of(layer);
    for (int& unit : units) unit = new_index[static_cast<size_t>(unit)];
    part.places_[list(layer)] = std::move(places);
    part.units_of_[list(layer)] = std::move(units);
  }
  return part;
}

void Wrapping::set_in_flight(const std::function<int(const std::vector<int>& layers)>& in_flight) {
  std::vector<std::vector<int>> layers(units_.size());
  for (int layer = first_trained_layer_; layer < layer_count(); ++layer)
    for (const int unit : units_of(layer)) layers[static_cast<size_t>(unit)].push_back(layer);
  for (UnitRole& role : roles_) role.in_flight = in_flight(layers[static_cast<size_t>(role.index)]);
}

void Wrapping::assign(const Model& model, const std::vector<std::string>& unit_names,
                      const WrapOptions& options) {
  std::vector<bool> used(options.replicate.size());
  const auto replicated = [&](const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < options.replicate.size(); ++i)
      if (matches(options.replicate[i], name)) any = used[i] = true;
    return any;
  };
  size_t at = 0;
  for (size_t l = 0; l < model.param_lists().size(); ++l) {
    // Before the blocks, list l is the list of layer l.
    const int embedding = model.embedding_layer(), at_layer = static_cast<int>(l);
    const std::string where = at_layer < embedding          ? "images"
                              : at_layer == embedding       ? "first"
                              : at_layer == list_of_.back() ? "last"
                                                            : "blocks";
    places_.emplace_back();
    units_of_.emplace_back();
    for (const ParamSpec& spec : model.param_lists()[l].specs()) {
      const std::string& wrap = unit_names[at++];
      const bool whole = replicated(spec.name),
                 root = !whole && (wrap.empty() || options.policy == WrapPolicy::none);
      const std::string name = whole ? "replicated, " + where : wrap.empty() ? "root, " + where : wrap;
      const int unit = spec.joined ? places_.back().back().unit : unit_named(name, root, whole);
      if (module_of_experts(spec.name) == roles_[static_cast<size_t>(unit)].name)
        role(unit).parts = options.expert_ranks;
      places_.back().push_back({unit, units_[static_cast<size_t>(unit)].add(spec)});
      std::vector<int>& of_list = units_of_.back();
      if (std::find(of_list.begin(), of_list.end(), unit) == of_list.end()) of_list.push_back(unit);
    }
  }
  for (size_t i = 0; i < used.size(); ++i)
    check(bool{used[i]}, "parallel.replicate: \"", options.replicate[i],
          "\" matches no parameter; names look like ", model.param_lists().back().specs().back().name);
}

int Wrapping::unit_named(const std::string& name, bool root, bool whole) {
  const auto [known, is_new] = by_name_.try_emplace(name, static_cast<int>(units_.size()));
  if (is_new) {
    units_.emplace_back();
    roles_.push_back({.name = name,
                      .index = known->second,
                      .layers = 0,
                      .backward_layers = 0,
                      .root = root,
                      .replicated = whole});
  }
  return known->second;
}

bool Wrapping::uses(int layer, int unit) const {
  const std::vector<int>& units = units_of(layer);
  return std::find(units.begin(), units.end(), unit) != units.end();
}

void Wrapping::find_first_trained_layer(const Model& model) {
  const auto trains = [&](int layer) {
    const std::vector<ParamSpec>& specs = model.param_lists()[list(layer)].specs();
    return std::any_of(specs.begin(), specs.end(), [](const ParamSpec& spec) { return spec.trainable; });
  };
  while (first_trained_layer_ < layer_count() && !trains(first_trained_layer_)) ++first_trained_layer_;
}

void Wrapping::assign_roles() {
  for (int layer = 0; layer < layer_count(); ++layer)
    for (const int unit : units_of(layer)) {
      ++role(unit).layers;
      if (layer >= first_trained_layer_) ++role(unit).backward_layers;
    }
  // Number the units that only one layer uses; units with the same number share a ring of slots.
  for (int layer = 0; layer < layer_count(); ++layer) {
    int next = 0;
    for (const int unit : units_of(layer))
      if (role(unit).layers == 1) role(unit).ring = next++;
  }
}

}  // namespace flatshard
