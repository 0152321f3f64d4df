#include "model/param_selection.h"

#include <algorithm>
#include <functional>

#include "model/lora.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

using Predicate = std::function<bool(const ParamSpec&)>;

// Calls set(spec, whether an entry matches it). Unless `may_be_unused`, throws an Error if an entry matches
// nothing.
void for_each_parameter(Model& model, const char* key, const std::vector<std::string>& entries,
                        const std::function<Predicate(const std::string&)>& predicate_of, bool may_be_unused,
                        const std::function<void(ParamSpec&, bool)>& set) {
  std::vector<Predicate> predicates;
  for (const std::string& entry : entries) predicates.push_back(predicate_of(entry));
  std::vector<bool> used(entries.size(), may_be_unused);
  std::string some_name;
  for (ParamList& list : model.param_lists())
    for (ParamSpec& spec : list.specs()) {
      bool taken = false;
      for (size_t i = 0; i < entries.size(); ++i)
        if (predicates[i](spec)) taken = used[i] = true;
      set(spec, taken);
      some_name = spec.name;
    }
  for (size_t i = 0; i < entries.size(); ++i)
    check(bool{used[i]}, key, ": \"", entries[i], "\" matches no parameter; names look like ", some_name);
}

// Separates joined weights and biases of which only some are trained, or decay: a layer multiplies them as
// one matrix only if they are alike. Adapters are always joined.
void separate_unlike(Model& model) {
  for (ParamList& list : model.param_lists())
    for (size_t i = 1; i < list.specs().size(); ++i) {
      ParamSpec& spec = list.specs()[i];
      const ParamSpec& before = list.specs()[i - 1];
      if (spec.role == ParamRole::adapter || !spec.joined) continue;
      spec.joined = spec.trainable == before.trainable && spec.decay == before.decay;
      check(spec.joined || spec.share == 1,
            "model.trainable and optimizer.no_decay must name all experts of "
            "a block or none: ",
            before.name, " is ", before.trainable ? "trained" : "frozen",
            before.decay ? "" : " without decay", ", ", spec.name, " is ",
            spec.trainable ? "trained" : "frozen", spec.decay ? "" : " without decay");
    }
}

bool is_kind(const std::string& entry) { return entry == "norm" || entry == "bias" || entry == "embed"; }

Predicate decay_predicate(const std::string& entry) {
  if (entry == "norm") return [](const ParamSpec& spec) { return spec.role == ParamRole::norm; };
  if (entry == "embed") return [](const ParamSpec& spec) { return spec.role == ParamRole::embedding; };
  if (entry == "bias")
    return [](const ParamSpec& spec) { return spec.role == ParamRole::bias || spec.name.ends_with(".bias"); };
  return [entry](const ParamSpec& spec) { return matches(entry, spec.name); };
}

void apply_decay(Model& model, const std::vector<std::string>& no_decay) {
  std::vector<std::string> kinds, patterns;
  for (const std::string& entry : no_decay) (is_kind(entry) ? kinds : patterns).push_back(entry);
  // A model may lack a kind (Llama has no biases), but a pattern without a match is a typo.
  for_each_parameter(model, "optimizer.no_decay", kinds, decay_predicate, true,
                     [](ParamSpec& spec, bool taken) { spec.decay = !taken; });
  for_each_parameter(model, "optimizer.no_decay", patterns, decay_predicate, false,
                     [](ParamSpec& spec, bool taken) { spec.decay = spec.decay && !taken; });
  separate_unlike(model);
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  // A greedy algorithm: after a mismatch it retries from the last star.
  size_t p = 0, n = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

void select_params(Model& model, const std::vector<std::string>& trainable,
                   const std::vector<std::string>& no_decay) {
  const auto by_name = [](const std::string& pattern) -> Predicate {
    return [pattern](const ParamSpec& spec) { return matches(pattern, spec.name); };
  };
  for_each_parameter(model, "model.trainable", trainable, by_name, false, [](ParamSpec& spec, bool taken) {
    spec.trainable = taken && spec.role != ParamRole::fixed;
  });
  check(trainable_count(model) > 0,
        "model.trainable = [] freezes all parameters: name at least one to train");
  apply_decay(model, no_decay);
}

void select_adapter_params(Model& model, const std::vector<std::string>& saved,
                           const std::vector<std::string>& no_decay) {
  const auto by_module = [](const std::string& entry) -> Predicate {
    return [entry](const ParamSpec& spec) {
      return spec.role != ParamRole::adapter &&
             names_module(entry, spec.name.substr(0, spec.name.rfind('.')));
    };
  };
  for_each_parameter(model, "lora.save_modules", saved, by_module, false, [](ParamSpec& spec, bool taken) {
    spec.trainable = taken || spec.role == ParamRole::adapter;
    if (spec.trainable) spec.dtype.reset();  // a trained parameter has an fp32 master instead
  });
  apply_decay(model, no_decay);
}

int64_t trainable_count(const Model& model) {
  int64_t count = 0;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (spec.trainable) count += spec.shape.size();
  return count;
}

}  // namespace flatshard
