#pragma once
// Groups parameters into communication units. A model declares a list of parameters per layer; a policy
// regroups them into units, each of which is gathered and reduced as a whole:
//
//   block          a unit for each block of the text, the tower and the connector (the default); the experts
//                  of a block have a unit of their own
//   attention_mlp  one for the attention and one for the MLP of each block of the text, each half a layer of
//                  its own, and one for its experts
//   pattern        one for each module whose path matches; of nested matches, the outermost
//   size           one for each module, innermost first, with enough parameters not yet assigned
//   none           the whole model is one unit
//
// Unassigned parameters (embeddings, the last norm, the head, norms between the halves) form root units,
// which may stay gathered for a whole step: one for the layers of images, one for the embedding, one for the
// blocks, one for the last layer, so that none waits for another. Replicated parameters form units that stay
// unsharded on every rank; their gradients and optimizer state are sharded as the strategy says.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/slots.h"
#include "model/model.h"
#include "train/config/config.h"

namespace flatshard {

struct WrapOptions {
  WrapPolicy policy = WrapPolicy::block;
  std::vector<std::string> patterns{};   // policy pattern: module patterns
  int64_t size = 0;                      // policy size: minimum parameters of a unit
  std::vector<std::string> replicate{};  // patterns of replicated parameters
  int expert_ranks = 1;                  // parts of each unit of experts
};

class Wrapping {
 public:
  Wrapping(const Model& model, const WrapOptions& options);

  // An Error if layers of several stages of a pipeline use a unit.
  void check_divided(const std::function<int(int layer)>& stage_of) const;
  // The units of the model's layers for which owns(layer) is true, for a stage of a pipeline. They keep
  // their order and their roles; the other layers, which use none of them, have no units.
  Wrapping restricted(const std::function<bool(int layer)>& owns) const;
  const std::vector<ParamList>& units() const { return units_; }
  const std::vector<UnitRole>& roles() const { return roles_; }

  // The unit of a layer's parameter, and its id there.
  struct Place {
    int unit;
    ParamId id;
  };
  // Indexed by the parameter ids of the layer's list.
  const std::vector<Place>& places(int layer) const { return places_[list(layer)]; }
  const std::vector<int>& units_of(int layer) const { return units_of_[list(layer)]; }
  bool uses(int layer, int unit) const;
  // The unit's index among the units of the whole model.
  int whole_index(int unit) const { return whole_index_[static_cast<size_t>(unit)]; }
  int layer_count() const { return static_cast<int>(list_of_.size()); }
  // The backward pass ends here: no earlier layer is trained. layer_count() if none is.
  int first_trained_layer() const { return first_trained_layer_; }

  // Sets UnitRole::in_flight of each unit, given the layers with a backward pass that use it.
  void set_in_flight(const std::function<int(const std::vector<int>& layers)>& in_flight);

 private:
  Wrapping() = default;
  size_t list(int layer) const { return static_cast<size_t>(list_of_[static_cast<size_t>(layer)]); }
  void assign(const Model& model, const std::vector<std::string>& unit_names, const WrapOptions& options);
  int unit_named(const std::string& name, bool root, bool whole);
  UnitRole& role(int unit) { return roles_[static_cast<size_t>(unit)]; }
  void find_first_trained_layer(const Model& model);
  void assign_roles();

  std::vector<int> list_of_;  // index of each layer's parameter list in the model
  std::vector<ParamList> units_;
  std::vector<UnitRole> roles_;
  std::map<std::string, int> by_name_;
  std::vector<std::vector<Place>> places_;  // indexed by parameter list
  std::vector<std::vector<int>> units_of_;  // indexed by parameter list
  std::vector<int> whole_index_;            // indexed by unit
  int first_trained_layer_ = 0;
};

// The division of a model into layers that a policy needs.
LayerCut layer_cut(const WrapOptions& options);

}  // namespace flatshard
