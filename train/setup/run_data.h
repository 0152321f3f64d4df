#pragma once
// A token file and the order in which a run reads it, to train or to evaluate.

#include "text/data/data.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Where a run's tokenizer is: data.tokenizer, or else the model folder; "" if the run has neither.
const std::string& tokenizer_folder(const Config& config);

struct RunData {
  // An Error if the file's vocabulary is larger than the model's, or so much smaller that the file must be
  // from another tokenizer.
  RunData(const std::string& path, const RunSetup& setup, bool evaluation);

  // "corpus.tok: 1,820 tokens in 60 documents, 113 sequences; an epoch is 15 steps"; also what packing lost.
  std::string describe() const;
  // Whether sequences have places that are no targets by design: tokens that are not trained, or padding.
  bool has_untrained_places() const { return file.has_mask() || data.packed(); }

  TokenFile file;
  Data data;
  int64_t seq_len;
};

}  // namespace flatshard
