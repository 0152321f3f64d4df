#pragma once
// The files of a model folder besides weights and config.json: the tokenizer, the generation config and how
// images are read, under the names of Hugging Face transformers. They are copied byte for byte, never parsed,
// so that every model folder derived from this one opens with its tokenizer.

#include <map>
#include <string>

namespace flatshard {

using TokenizerFiles = std::map<std::string, std::string>;  // name in the folder -> content

// Whether this is the name of such a file.
bool is_tokenizer_file(const std::string& name);

// Reads those that a folder has, or makes those of a GGUF file; none if `folder` is "". Follows a link only
// within the folder, or to the blobs/ beside the snapshots/ of a Hugging Face cache; any other link is an
// Error, because the copies may be published. A file above 64 MiB is an Error too.
TokenizerFiles read_tokenizer_files(const std::string& folder);

// Writes the files into a folder, and removes the other tokenizer files there.
void replace_tokenizer_files(const std::string& folder, const TokenizerFiles& tokenizer_files);

}  // namespace flatshard
