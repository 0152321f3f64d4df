#pragma once
// The names that PEFT gives the modules of a base model: the ones that transformers uses in memory.
// They differ from the names in files only for Qwen's models that read images: model.layers.0 in a file is
// model.language_model.layers.0 in memory.

#include <string>

namespace flatshard {

bool has_peft_names(const std::string& family);  // that differ from those in files

// The name of a module or parameter in files as PEFT's, and back. Back, a name in files stays as it is.
std::string peft_name(const std::string& family, const std::string& name);
std::string name_in_files(const std::string& family, const std::string& name);

}  // namespace flatshard
