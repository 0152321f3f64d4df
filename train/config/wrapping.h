#pragma once
// Which parameters travel together. A model declares a list of parameters for each stage; a policy regroups
// them into units, each of which is gathered and reduced as one:
//
//   block          a unit for each block (the default)
//   attention_mlp  one for the attention and one for the MLP of each block, each half a stage of its own
//   pattern        one for each module whose path matches, the outermost where modules lie in each other
//   size           one for each module, innermost first, that has enough parameters not yet taken
//   none           the whole model is one unit
//
// What no policy takes (embeddings, the last norm, the head, norms between the halves) goes to root units,
// which may stay gathered for a whole step: one for the first stage, one for the blocks, one for the last
// stage, so that none of them waits for another. Parameters to be replicated get units whose values are whole
// on every rank all the time; their gradients and the optimizer's state are sharded as the strategy says.

#include <map>
#include <string>
#include <vector>

#include "comm/slots.h"
#include "model/model.h"

namespace flatshard {

struct WrapOptions {
  std::string policy = "block";
  std::vector<std::string> patterns{};   // pattern: of modules
  int64_t size = 0;                      // size: the least number of parameters
  std::vector<std::string> replicate{};  // patterns of parameters
};

class Wrapping {
 public:
  Wrapping(const Model& model, const WrapOptions& options);

  const std::vector<ParamList>& units() const { return units_; }
  const std::vector<UnitRole>& roles() const { return roles_; }

  // Where a parameter of a stage lies.
  struct Place {
    int unit;
    ParamId id;
  };
  // By the ids of the stage's list.
  const std::vector<Place>& places(int stage) const { return places_[list(stage)]; }
  const std::vector<int>& units_of(int stage) const { return units_of_[list(stage)]; }
  bool uses(int stage, int unit) const;
  int stage_count() const { return static_cast<int>(list_of_.size()); }
  // Backward passes end there: below it nothing is trained.
  int first_trained_stage() const { return first_trained_stage_; }

 private:
  size_t list(int stage) const { return static_cast<size_t>(list_of_[static_cast<size_t>(stage)]); }
  void assign(const Model& model, const std::vector<std::string>& unit_names, const WrapOptions& options);
  int unit_named(const std::string& name, bool root, bool whole);
  UnitRole& role(int unit) { return roles_[static_cast<size_t>(unit)]; }
  void find_first_trained_stage(const Model& model);
  void assign_roles();

  std::vector<int> list_of_;  // by stage: the list of the model that it works with
  std::vector<ParamList> units_;
  std::vector<UnitRole> roles_;
  std::map<std::string, int> by_name_;
  std::vector<std::vector<Place>> places_;  // by list
  std::vector<std::vector<int>> units_of_;  // by list
  int first_trained_stage_ = 0;
};

// How the stages of a model must be cut for a policy.
StageCut stage_cut(const WrapOptions& options);

}  // namespace flatshard
