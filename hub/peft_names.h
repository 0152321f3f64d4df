#pragma once
// The names by which PEFT calls the modules of a base: those that transformers gives them in memory. Only
// Qwen's models that read images have others in their files, such as model.layers.0 for
// model.language_model.layers.0.

#include <string>

namespace flatshard {

bool has_peft_names(const std::string& family);  // that differ from those in files

// The name of a module or parameter in files as PEFT's, and back. Back, a name in files stays as it is.
std::string peft_name(const std::string& family, const std::string& name);
std::string name_in_files(const std::string& family, const std::string& name);

}  // namespace flatshard
