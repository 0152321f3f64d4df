#pragma once
// A token file and how a run walks through it, to train or to evaluate.

#include "train/config/run_setup.h"
#include "train/text/data.h"

namespace flatshard {

struct RunData {
  // An Error where the file has tokens that the model has not, or so few that it must be another tokenizer's.
  RunData(const std::string& path, const RunSetup& setup, bool evaluation);

  // "corpus.tok: 1,820 tokens in 60 documents, 113 sequences; an epoch is 15 steps"
  std::string describe() const;

  TokenFile file;
  Data data;
};

}  // namespace flatshard
