#pragma once
// Which experts of a mixture the tokens of texts go to, in each block: how often each is chosen, and how much
// the choice says about the token: the mutual information of a token's id and its expert, in bits. Each of a
// token's k choices counts 1 / k. With few tokens the information is above 0 by chance, so that beside it
// stands that of shuffled choices: of another token of the same pass for each.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "runtime/tensor.h"

namespace flatshard {

class ExpertUse {
 public:
  explicit ExpertUse(const ModelConfig& config);

  // Adds the tokens of a pass. `choices` (blocks, rows, k) i32 has the experts of the first tokens.size()
  // rows. The number of the pass determines what is shuffled.
  void add(std::span<const int32_t> tokens, const Tensor& choices, int64_t pass);

  // The counts as text, and adds those of a text, such as another rank's.
  std::string text() const;
  void add(const std::string& text);

  int64_t tokens() const { return tokens_; }
  // A line for each block, and one for their means.
  std::string table() const;
  // A picture (SVG) of the loads: blocks from top to bottom, experts from left to right.
  std::string picture() const;

 private:
  using Counts = std::map<int32_t, std::vector<int64_t>>;  // by token: of each expert
  struct Block {
    int64_t index;
    Counts own{}, shuffled{};
  };
  std::vector<int64_t> loads(const Block& block) const;

  int64_t experts_, per_token_, tokens_ = 0;
  std::vector<Block> blocks_;  // those with experts
};

}  // namespace flatshard
