#pragma once
// Times the training of a BPE tokenizer on a text, and encoding and decoding the text with it. The text is
// cut at line ends into documents of about 64 KiB, which are shared by the threads.

#include <string>
#include <vector>

#include "bench/measure.h"

namespace flatshard::bench {

struct TokenizerOptions {
  std::string text;       // path of a text file
  std::string tokenizer;  // folder or file; "" to encode with the trained tokenizer
  int64_t vocab = 32000;  // vocabulary of the trained tokenizer
  double seconds = 2;     // seconds per line of the table
};

// One line of the table.
struct TokenizerTime {
  std::string work;  // "train", "encode", "decode"
  int threads = 1;
  Spread seconds;
};
struct TokenizerResult {
  int64_t bytes = 0, documents = 0, tokens = 0;
  std::vector<TokenizerTime> times;
};

TokenizerResult measure_tokenizer(const TokenizerOptions& options);
std::string tokenizer_table(const TokenizerResult& result);

}  // namespace flatshard::bench
