#pragma once
// The targets of file_targets.h that concern text: tokenizers, chat templates, datasets, token files.

#include <cstddef>
#include <span>
#include <string>

namespace flatshard::test {

// A tokenizer.json, a zero byte, and a text: ids are in the vocabulary, begins ascend, and decoding piece by
// piece gives the same text.
std::string try_tokenizer(std::span<const std::byte> bytes);

// A template; then, unless a conversation of ours is to be rendered, a zero byte and a record of a
// conversation: the rendering says which of its bytes are data, and a sample has one mask value per token.
std::string try_chat_template(std::span<const std::byte> bytes);

// A file of JSON lines: each record is a sample, or a prompt, or is refused with its place; all are counted;
// and what is written is read back, however it is packed.
std::string try_dataset(std::span<const std::byte> bytes);

// A file of JSON lines that are pairs, labeled answers or rollouts: of each kind, a record has its documents
// and a value for each trained token, or is refused with its place; and what is written is read back. Why
// each kind refuses its first record, or "" if one takes all.
std::string try_answers(std::span<const std::byte> bytes);

// A column of three values that belong to "fuzz".
std::string try_token_column(std::span<const std::byte> bytes);

// A token file: its tokens, mask and documents are in their bounds, are the same once they are written again,
// and can be packed.
std::string try_token_file(std::span<const std::byte> bytes);

// A file of an image: its header tells the size of its pixels, and of their patches.
std::string try_image(std::span<const std::byte> bytes);

}  // namespace flatshard::test
