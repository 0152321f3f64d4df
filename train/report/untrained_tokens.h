#pragma once
// Published weights contain tokens that were never trained, such as reserved special tokens, and the tokens
// of a chat template in a base model. A run that uses them deserves a warning.
//
// A row of the embedding looks untrained if it equals another row bit for bit, or if its distance from zero
// or from the mean of all rows is below a tenth of the median distance of rows from that mean. Untrained rows
// that still have their random initial values cannot be told from trained ones.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "hub/published_weights.h"
#include "text/data/token_file.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// The ids of the rows that look untrained, in ascending order, without the id of <image>, which images
// replace. Reads the embedding twice, in blocks.
std::vector<int64_t> untrained_tokens(PublishedWeights& weights, const ModelConfig& config);

// Logs a warning that names the untrained tokens in files, their counts, and the remedy. Reads the files only
// if the model has untrained tokens.
void warn_of_untrained_tokens(const std::deque<TokenFile>& files, PublishedWeights& weights,
                              const RunSetup& setup);

}  // namespace flatshard
