#pragma once
// Names of models on the Hugging Face hub, such as HuggingFaceTB/SmolLM2-135M, which users may give instead
// of a folder.

#include <string>

namespace flatshard {

// A clause for the error about a path that does not exist: how to download the model, if the path reads as a
// name on the hub. "" if it does not, or if its first part is a folder here, or one of our pages' examples.
std::string download_advice(const std::string& path);

}  // namespace flatshard
