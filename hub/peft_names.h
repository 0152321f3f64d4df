#pragma once
// PEFT's names of the modules of a base model, which are the names of transformers in memory. They differ
// from the names in files for Qwen's models that read images, where model.layers.0 in a file is
// model.language_model.layers.0 in memory, and for Mixtral, whose block_sparse_moe is mlp in memory.

#include <string>

namespace flatshard {

bool has_peft_prefixes(const std::string& family);  // whether whole paths begin otherwise in PEFT

// Convert between PEFT's names and the names in files, and so patterns for them. name_in_files() leaves a
// name in files unchanged.
std::string peft_name(const std::string& family, const std::string& name);
std::string name_in_files(const std::string& family, const std::string& name);

// The name of a module within the one around it: "q_proj".
std::string last_component(const std::string& path);

}  // namespace flatshard
