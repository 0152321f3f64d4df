#pragma once
// A sample as text for a terminal: its origin and its text, with trained tokens marked.

#include <string>

#include "text/data/sample_encoder.h"

namespace flatshard {

// Trained text is green on a terminal with colors, and between » and « otherwise. An image is shown as its
// name and size in brackets.
std::string picture_of(const Record& record, const Sample& sample, const SampleEncoder& encoder, bool colors);

}  // namespace flatshard
