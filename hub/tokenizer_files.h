#pragma once
// The files of a model folder besides weights and config.json: the tokenizer, the generation config and the
// image processor, under the names of Hugging Face transformers. They are copied byte for byte, never parsed,
// so that every model folder derived from this one opens with its tokenizer.

#include <map>
#include <string>

namespace flatshard {

using TokenizerFiles = std::map<std::string, std::string>;  // name in the folder -> content

// Whether a tokenizer file has this name.
bool is_tokenizer_file(const std::string& name);

// Reads the tokenizer files of a folder, or makes those of a GGUF file; none if `folder` is "". Follows a
// link only within the folder, or to the blobs/ beside the snapshots/ of a Hugging Face cache. Any other link
// is an Error, because the copies may be published. A file above 64 MiB is also an Error.
TokenizerFiles read_tokenizer_files(const std::string& folder);

// Writes the files into a folder, and removes all other tokenizer files from it.
void replace_tokenizer_files(const std::string& folder, const TokenizerFiles& tokenizer_files);

}  // namespace flatshard
