#pragma once
// Resolves a model on a command line: finds the model folder, adapter folder or run, and the base of an
// adapter.

#include <string>

#include "hub/adapted_model.h"

namespace flatshard {

struct BaseChoice {
  bool other = false;      // accept a base whose weights differ from those that the adapter was trained on
  bool as_stored = false;  // do not quantize the base's weights to 4 bits as the run did
  std::string naming{};    // the command line's way to name a base, for errors; "": FOLDER --adapter ADAPTER
};

// `given` is a model folder, an adapter folder, a checkpoint (RUN/best and RUN/latest name one), or a run,
// which means its model/ or adapter/, or else its latest checkpoint. "" means the last run (last_run.h);
// outside a run folder, "best" and "latest" mean its checkpoints. With `adapter`, an adapter folder or a run,
// `given` is the base, unless it is "".
//
// Otherwise the adapter's files name its base (adapter_base.h). If the adapter records its base, different
// weights are an Error, and the weights are quantized as in the run.
ModelSource find_model(const std::string& given, const std::string& adapter, const BaseChoice& base = {},
                       const std::string& start = ".");

}  // namespace flatshard
