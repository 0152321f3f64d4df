#pragma once
// A token file and how a run walks through it, to train or to evaluate.

#include "train/config/run_setup.h"
#include "train/text/data.h"

namespace flatshard {

struct RunData {
  // An Error where the file has tokens that the model has not.
  RunData(const std::string& path, const RunSetup& setup, bool evaluation);

  TokenFile file;
  Data data;
};

}  // namespace flatshard
