#pragma once
// A tokenizer folder for tests: a token is a byte, except for the special tokens 256 to 261: <s>, </s>,
// <|im_start|>, <|im_end|>, <|user|> and <|assistant|>. </s> is the EOS token, and BOS is added on request.

#include <string>

namespace flatshard::test {

void write_byte_tokenizer(const std::string& folder, bool adds_bos = false);

}  // namespace flatshard::test
