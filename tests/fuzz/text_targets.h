#pragma once
// The targets of file_targets.h that concern text: tokenizers, chat templates, datasets, token files.

#include <cstddef>
#include <span>
#include <string>

namespace flatshard::test {

// The bytes are a tokenizer.json, a zero byte, and a text. Checks that ids are in the vocabulary, that starts
// ascend, and that decoding piece by piece gives the same text.
std::string try_tokenizer(std::span<const std::byte> bytes);

// The bytes are a template, optionally followed by a zero byte and a record of a conversation; otherwise a
// fixed conversation is rendered. Checks that the rendering records which of its bytes are data, and that a
// sample has one mask value per token.
std::string try_chat_template(std::span<const std::byte> bytes);

// The bytes are a file of JSON lines. Checks that each record is a sample, or a prompt, or is refused with
// its place, that all are counted, and that reading returns the written records, however they are packed.
std::string try_dataset(std::span<const std::byte> bytes);

// The bytes are a file of JSON lines that are pairs, labeled answers or rollouts. For each kind, checks that
// a record has its documents and a value for each trained token, or is refused with its place, and that
// reading returns the written values. Returns the reasons why each kind refuses its first record; "" if one
// kind accepts all records.
std::string try_answers(std::span<const std::byte> bytes);

// The bytes are a column of three values that belong to "fuzz".
std::string try_token_column(std::span<const std::byte> bytes);

// The bytes are a token file. Checks that its tokens, mask and documents are within their bounds, that they
// are the same after they are written again, and that they can be packed.
std::string try_token_file(std::span<const std::byte> bytes);

// The bytes are an image file. Checks that its header gives the size of its pixels, and of their patches.
std::string try_image(std::span<const std::byte> bytes);

}  // namespace flatshard::test
