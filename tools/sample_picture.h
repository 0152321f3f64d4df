#pragma once
// A sample as text for a terminal: its origin, its text, and which tokens are trained.

#include <string>

#include "text/data/sample_encoder.h"

namespace flatshard {

// Trained text is green on a terminal with colors, and between » and « without; other text is unmarked.
// An image is its name and size in brackets.
std::string picture_of(const Record& record, const Sample& sample, const SampleEncoder& encoder, bool colors);

}  // namespace flatshard
