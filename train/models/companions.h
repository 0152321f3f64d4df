#pragma once
// What a model folder has besides weights and config.json: the tokenizer's files and how to generate, under
// the names that Hugging Face transformers gives them. Nothing here reads them; they go along with the
// weights, byte for byte, so that what is made of a folder opens with its tokenizer as well.

#include <map>
#include <string>

namespace flatshard {

using Companions = std::map<std::string, std::string>;  // name in the folder -> content

// Whether a file of this name is one of them.
bool is_companion(const std::string& name);

// Those that a folder has; none where it is "". A link counts as the file that it leads to, if that lies in
// the folder or is one of Hugging Face's cache, beside whose snapshots/ are its blobs/. Any other is an
// Error: what is written from here may be published. So is a file of more than 64 MiB.
Companions read_companions(const std::string& folder);

// In a folder that has been used before: writes them, and removes others of their names.
void replace_companions(const std::string& folder, const Companions& companions);

}  // namespace flatshard
