#include "tools/inference/expert_use.h"

#include <cmath>
#include <sstream>

#include "runtime/rng.h"
#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Two experts a token in the second of two blocks.
ModelConfig mixture() {
  ModelConfig c = test::small_model("qwen3_moe");
  c.experts = 4;
  return resolved(c);
}

// The numbers in the line of a block, or of the means.
std::vector<double> line_of(const ExpertUse& use, const std::string& name) {
  std::istringstream lines(use.table());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != name) continue;
    std::vector<double> values;
    for (double value = 0; words >> value;) values.push_back(value);
    return values;
  }
  return {};
}

// Adds passes of 64 rows, of which 60 have tokens; choose(token, j) is the expert of choice j.
template <class Choose>
ExpertUse used(int64_t passes, const Choose& choose) {
  ExpertUse use(mixture());
  for (int64_t pass = 0; pass < passes; ++pass) {
    const RandomStream random(3, "tokens", static_cast<uint64_t>(pass));
    std::vector<int32_t> tokens, choices(2 * 64 * 2, -1);
    for (int64_t i = 0; i < 60; ++i) tokens.push_back(static_cast<int32_t>(4 * random.uniform(i)));
    for (size_t i = 0; i < tokens.size(); ++i)
      for (size_t j = 0; j < 2; ++j) choices[(64 + i) * 2 + j] = choose(tokens[i], static_cast<int32_t>(j));
    use.add(tokens, tensor_of(choices.data(), {2, 64, 2}), pass);
  }
  return use;
}

}  // namespace

TEST_CASE("experts that depend on the token have information about it, and shuffled ones hardly any") {
  // Tokens 0 and 1 go to experts 0 and 1, tokens 2 and 3 to 2 and 3: one bit.
  const ExpertUse use = used(40, [](int32_t token, int32_t j) { return token / 2 * 2 + j; });
  const std::vector<double> block = line_of(use, "1");
  REQUIRE(block.size() == 5);
  CHECK(block[0] == doctest::Approx(1).epsilon(0.1));
  CHECK(block[1] == doctest::Approx(1).epsilon(0.01));
  CHECK(block[2] == 0);
  CHECK(block[3] == doctest::Approx(1).epsilon(0.01));
  CHECK(block[4] < 0.02);
  CHECK(line_of(use, "0").empty());  // it has no experts
  CHECK(line_of(use, "mean").size() == 5);
  CHECK(use.tokens() == 40 * 60);
}

TEST_CASE("experts without tokens and uneven loads are counted") {
  const std::vector<double> block =
      line_of(used(3, [](int32_t, int32_t j) { return 2 * j; }), "1");  // experts 0 and 2 alone
  CHECK(block[0] == 2);
  CHECK(block[1] == doctest::Approx(0.5));
  CHECK(block[2] == 2);
  CHECK(block[3] == 0);
}

TEST_CASE("counts of several ranks add up") {
  const auto choose = [](int32_t token, int32_t j) { return (token + j) % 4; };
  const ExpertUse two = used(2, choose);
  ExpertUse sum(mixture());
  sum.add(two.text());
  CHECK(sum.table() == two.table());
  CHECK(sum.picture() == two.picture());
  sum.add(two.text());
  CHECK(sum.tokens() == 2 * two.tokens());
  CHECK(sum.table() == two.table());  // shares do not change
}

TEST_CASE("the picture has a square for each expert of each block with experts") {
  const std::string picture = used(1, [](int32_t, int32_t j) { return j; }).picture();
  size_t squares = 0;
  for (size_t at = 0; (at = picture.find("<title>block 1, expert ", at)) != std::string::npos; ++at)
    ++squares;
  CHECK(squares == 4);
  CHECK(picture.find("expert 0: 2<") != std::string::npos);
  CHECK(picture.find("expert 3: 0<") != std::string::npos);
}
