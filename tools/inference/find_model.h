#pragma once
// A model as a command line names it: the model folder, adapter folder or run that is meant, and the base of
// an adapter.

#include <string>

#include "hub/adapted_model.h"

namespace flatshard {

struct BaseChoice {
  bool other = false;      // accept a base with other weights than those that the adapter was trained on
  bool as_stored = false;  // do not round its weights to 4 bits as the run did
  std::string naming{};    // how the command line names a base, for errors; "": FOLDER --adapter ADAPTER
};

// `given` is a model folder, an adapter folder, a checkpoint (RUN/best and RUN/latest name one), or a run,
// which means its model/ or adapter/, or else its latest checkpoint; "" means the last run (last_run.h), and
// "best" and "latest" outside a run folder its checkpoints. With `adapter`, an adapter folder or a run,
// `given` is the base, unless it is "".
//
// The base of an adapter is otherwise the one that its files name (adapter_base.h). If the adapter records
// its base, other weights are an Error, and they are rounded as the run rounded them.
ModelSource find_model(const std::string& given, const std::string& adapter, const BaseChoice& base = {},
                       const std::string& start = ".");

}  // namespace flatshard
