#include "text/data/sequences.h"

#include <filesystem>
#include <limits>

#include "tests/test.h"
#include "text/data/data.h"

using namespace flatshard;

namespace {

using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;
constexpr const char *kPath = "sequences_test.tok", *kColumn = "sequences_test.column";

struct Document {
  int length, trained;  // the last tokens are trained
};

// Documents of tokens 1, 2, 3, ... and a column of the tokens divided by ten.
struct TempAnswers {
  explicit TempAnswers(const std::vector<Document>& documents) {
    TokenWriter writer(kPath, 100);
    for (const Document& d : documents) {
      Ints tokens;
      std::vector<uint8_t> trained;
      for (int i = 0; i < d.length; ++i) {
        values.push_back(static_cast<float>(values.size() + 1) / 10);
        tokens.push_back(static_cast<int32_t>(values.size()));
        trained.push_back(i >= d.length - d.trained);
      }
      writer.add_document(tokens, trained);
    }
    writer.finish();
  }
  ~TempAnswers() {
    for (const char* path : {kPath, kColumn}) std::filesystem::remove(path);
  }
  Floats values;
};

struct TempFile {
  ~TempFile() { std::filesystem::remove(kPath); }
};

struct Space {
  Space(int64_t n, int64_t most, int64_t columns)
      : ints(static_cast<size_t>(4 * n + 1 + 3 * most)), values(static_cast<size_t>(columns * n), -1.0f) {
    int32_t* at = ints.data();
    const auto take = [&](const Shape& shape) {
      const Tensor tensor = tensor_of(at, shape);
      at += shape.size();
      return tensor;
    };
    batch = {.tokens = take({n}), .positions = take({n}), .targets = take({n}), .boundaries = take({n + 1})};
    batch.answers = {.examples = take({most, 3}), .values = tensor_of(values.data(), {columns, n})};
  }
  Ints ints;
  Floats values;
  Batch batch;
};

Ints elements(const Tensor& t) { return {t.as<int32_t>(), t.as<int32_t>() + t.size()}; }

DataOptions options_of(int64_t seq_len, int64_t sequences, RecordKind records,
                       Packing packing = Packing::best_fit) {
  return {.seq_len = seq_len,
          .lane_sequences = sequences,
          .total_sequences = sequences,
          .packing = {.packing = packing, .records = records},
          .shuffle = false};
}

int64_t examples_of(const DataOptions& options) {
  return most_examples(options.lane_sequences * options.seq_len,
                       documents_per_record(options.packing.records));
}

}  // namespace

TEST_CASE("an example is never cut, and is dropped if it is too long or an answer is not trained") {
  const TempAnswers temp({{3, 1}, {2, 1}, {4, 2}, {5, 1}, {9, 1}, {2, 1}, {3, 0}, {2, 1}, {2, 1}, {2, 1}});
  const TokenFile file(kPath);
  for (const Packing packing : {Packing::best_fit, Packing::none}) {
    const PackedSequences packed(file, options_of(9, 1, RecordKind::pairs, packing).packing, 9);
    CHECK(packed.losses().long_examples == 1);
    CHECK(packed.losses().untrained == 1);
    CHECK(packed.used_tokens() == 5 + 9 + 4);
    std::vector<Ints> lengths;
    for (int64_t i = 0; i < packed.count(); ++i) {
      lengths.emplace_back();
      for (const Piece piece : packed.pieces(i)) lengths.back().push_back(piece.length);
    }
    CHECK(lengths ==
          (packing == Packing::none ? std::vector<Ints>{{5}, {9}, {4}} : std::vector<Ints>{{9}, {5, 4}}));
  }
}

TEST_CASE("a batch says where examples begin, where their second answer begins, and where they end") {
  const TempAnswers temp({{3, 1}, {2, 1}, {4, 2}, {5, 1}, {2, 1}, {2, 1}});
  const TokenFile file(kPath);
  write_token_column(kColumn, "", temp.values);
  const TokenColumn column(kColumn, file.size(), "");
  const DataOptions options = options_of(10, 2, RecordKind::pairs);
  Data data(file, options);
  data.set_columns({{&column, &column}});
  Space space(20, examples_of(options), 2);
  CHECK(examples_of(options) == 5);
  const Batch batch = data.read(0, 0, space.batch);
  CHECK(elements(batch.tokens) == Ints{6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 5, 15, 16, 17, 18, 0});
  CHECK(elements(batch.targets) == Ints{-100, 8, 9,    -100, -100, -100, -100, 14, -100, -101,
                                        -100, 3, -100, 5,    -100, 16,   -100, 18, -100, -101});
  CHECK(data.token_count(0) == 18);
  CHECK(elements(batch.positions) == Ints{0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 0, 1, 2, 0, 1, 0, 1, 0, 1, 0});
  CHECK(elements(batch.boundaries) == Ints{0, 4, 9, 10, 13, 15, 17, 19, 20});
  CHECK(batch.answers.examples.shape == Shape{3, 3});
  CHECK(elements(batch.answers.examples) == Ints{0, 4, 9, 10, 13, 15, 15, 17, 19});
  const Ints targets = elements(batch.targets);
  for (size_t k = 0; k < 2; ++k)
    for (size_t i = 0; i < 20; ++i)
      CHECK(space.values[20 * k + i] == (targets[i] < 0 ? 0 : static_cast<float>(targets[i]) / 10));
  CHECK(data.target_count(0) == 7);
}

TEST_CASE("answers are counted by source: examples, targets, and the targets of first answers") {
  const TempAnswers temp({{3, 1}, {2, 1}, {4, 3}, {5, 5}, {2, 1}, {2, 1}});
  const TokenFile file(kPath);
  const Data data(file, options_of(10, 2, RecordKind::pairs));
  const std::vector<AnswerCounts> counts = data.answer_counts(0);
  REQUIRE(counts.size() == 1);
  CHECK(counts[0].examples == 3);
  CHECK(counts[0].tokens == 2 + 3 + 4 + 2);  // the first token of the document of 5 is no target
  CHECK(counts[0].chosen_tokens == 1 + 3 + 1);
  CHECK(data.target_count(0) == counts[0].tokens);
  CHECK(data.source(0).answers_in(-1).examples == 0);
}

TEST_CASE("an example of one answer ends where a second would begin, and padding may be on the left") {
  const TempAnswers temp({{3, 1}, {2, 1}});
  const TokenFile file(kPath);
  DataOptions options = options_of(4, 2, RecordKind::rollouts, Packing::none);
  options.packing.padding = Padding::left;
  const Data data(file, options);
  Space space(8, examples_of(options), 0);
  const Batch batch = data.read(0, 0, space.batch);
  CHECK(elements(batch.answers.examples) == Ints{1, 4, 4, 6, 8, 8});
  CHECK(elements(batch.boundaries) == Ints{0, 1, 4, 6, 8});
}

TEST_CASE("a lane of empty sequences has no examples") {
  const TempAnswers temp({{3, 1}, {2, 1}});
  const TokenFile file(kPath);
  DataOptions options = options_of(5, 1, RecordKind::pairs);
  options.total_sequences = 2;
  const Data data(file, options);
  Space space(5, examples_of(options), 0);
  CHECK(data.read(0, 0, space.batch).answers.examples.shape == Shape{1, 3});
  CHECK(data.read(0, 1, space.batch).answers.examples.empty());
}

TEST_CASE("a target without a value is an error with its token and file") {
  const TempAnswers temp({{3, 2}, {2, 1}});
  const TokenFile file(kPath);
  const DataOptions options = options_of(5, 1, RecordKind::pairs);
  const auto error = [&](size_t missing) {
    Floats values = temp.values;
    values[missing] = std::numeric_limits<float>::quiet_NaN();
    write_token_column(kColumn, "", values);
    const TokenColumn column(kColumn, file.size(), "");
    Data data(file, options);
    data.set_columns({{&column}});
    Space space(5, examples_of(options), 1);
    return test::error_of([&] { data.read(0, 0, space.batch); });
  };
  CHECK(error(0) == "");
  CHECK(error(3) == "");  // no target: the first token of the second answer
  CHECK(error(2) == "sequences_test.column: has no value for token 2: remove it, and it is made again");
}

TEST_CASE("answers are refused with a packing that could cut them, and if none fits") {
  const TempAnswers temp({{3, 1}, {2, 1}, {3, 1}});
  const TokenFile file(kPath);
  for (const Packing packing : {Packing::wrapped, Packing::documents, Packing::best_fit_split})
    CHECK(test::error_of([&] {
            Data data(file, options_of(5, 1, RecordKind::rollouts, packing));
          }).ends_with("could cut: set data.packing = \"best_fit\" or \"none\""));
  CHECK(test::error_of([&] { Data data(file, options_of(5, 1, RecordKind::pairs)); }) ==
        "sequences_test.tok: has 3 documents, which are not pairs: make it with prepare --records pairs");
  const TokenFile one_pair(kPath, 2);
  const auto error = [&](RecordKind records) {
    return test::error_of([&] { Data data(one_pair, options_of(4, 1, records)); });
  };
  CHECK(error(RecordKind::pairs) ==
        "sequences_test.tok: none of its 1 pairs fits data.seq_len = 4 with tokens to train on: set a larger "
        "data.seq_len");
  CHECK(error(RecordKind::labels).starts_with("sequences_test.tok: none of its 1 labeled answers fits"));
}

TEST_CASE("a sequence of a million tokens has the ends of its thousands of documents") {
  constexpr int64_t kLength = 1 << 20, kOfDocument = 128, kDocuments = kLength / kOfDocument;
  const TempFile file_of_test;
  {
    TokenWriter writer(kPath, 100);
    Ints tokens(kOfDocument);
    for (int64_t d = 0; d < kDocuments; ++d) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>((static_cast<size_t>(d) + i) % 100);
      writer.add_document(tokens);
    }
    writer.add_document(Ints{1});
    writer.finish();
  }
  const TokenFile file(kPath);
  for (const Packing packing : {Packing::documents, Packing::best_fit}) {
    CAPTURE(packing);
    const Data data(file, options_of(kLength, 1, RecordKind::samples, packing));
    REQUIRE(data.sequence_count() == 1);
    const Space space(kLength, 0, 0);
    const Batch batch = data.read(0, 0, space.batch);
    const Ints ends = elements(batch.boundaries), positions = elements(batch.positions),
               targets = elements(batch.targets);
    int64_t wrong = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      const auto at = static_cast<size_t>(t);
      const int64_t position = t % kOfDocument;
      const int64_t target =
          position + 1 < kOfDocument ? (t / kOfDocument + position + 1) % 100 : kIgnoredTarget;
      wrong += positions[at] != position || targets[at] != target;
    }
    CHECK(wrong == 0);
    REQUIRE(std::ssize(ends) == kDocuments + 1);
    for (int64_t d = 0; d <= kDocuments; ++d) wrong += ends[static_cast<size_t>(d)] != d * kOfDocument;
    CHECK(wrong == 0);
    CHECK(data.target_count(0) == kLength - kDocuments);
  }
}
